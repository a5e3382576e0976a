package main

import (
	"net"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
	"penstock/clients/driver"
)

type act func(admin sarama.ClusterAdmin, with driver.Admin) (any, error)

var resources = map[string]sarama.ConfigResourceType{"topic": sarama.TopicResource, "broker": sarama.BrokerResource}

func (it *driven) addAdministration(commands driver.Commands) {
	for name, do := range map[string]act{
		"create_topic":      createTopic,
		"delete_topic":      deleteTopic,
		"create_partitions": createPartitions,
		"list_topics":       listTopics,
		"describe_topic":    describeTopic,
		"describe_config":   describeConfig,
		"alter_config":      alterConfig,
		"replace_config":    replaceConfig,
		"list_groups":       listGroups,
		"describe_group":    describeGroup,
		"delete_group":      deleteGroup,
		"group_offsets":     groupOffsets,
		"alter_offsets":     alterOffsets,
		"delete_offsets":    deleteOffsets,
		"list_offset":       listOffset,
		"delete_records":    deleteRecords,
		"describe_cluster":  describeCluster,
		"log_dirs":          logDirs,
		"set_quota":         setQuota,
		"quotas":            quotas,
	} {
		commands[name] = driver.With(func(with driver.Admin) (any, error) {
			admin, err := it.admin(with.Bootstrap)
			if err != nil {
				return nil, err
			}
			return do(admin, with)
		})
	}
}

func (it *driven) admin(bootstrap string) (sarama.ClusterAdmin, error) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	if admin, known := it.admins[bootstrap]; known {
		return admin, nil
	}
	admin, err := sarama.NewClusterAdmin(strings.Split(bootstrap, ","), settings())
	if err == nil {
		it.admins[bootstrap] = admin
	}
	return admin, err
}

func createTopic(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	detail := &sarama.TopicDetail{NumPartitions: with.Partitions, ReplicationFactor: 1, ConfigEntries: with.Configs}
	return nil, admin.CreateTopic(with.Topic, detail, false)
}

func deleteTopic(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	return nil, admin.DeleteTopic(with.Topic)
}

func createPartitions(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	return nil, admin.CreatePartitions(with.Topic, with.Count, nil, false)
}

func listTopics(admin sarama.ClusterAdmin, _ driver.Admin) (any, error) {
	topics, err := admin.ListTopics()
	names := []string{}
	for name := range topics {
		names = append(names, name)
	}
	return names, err
}

func describeTopic(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	described, err := admin.DescribeTopics([]string{with.Topic})
	if err != nil {
		return nil, err
	}
	return map[string]int{"partitions": len(described[0].Partitions)}, nil
}

func describeConfig(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: resources[with.Kind], Name: with.Name})
	described := map[string]string{}
	for _, entry := range entries {
		described[entry.Name] = entry.Value
	}
	return described, err
}

func alterConfig(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range with.Change {
		change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
		if value == nil {
			change.Operation = sarama.IncrementalAlterConfigsOperationDelete
		}
		changes[name] = change
	}
	return nil, admin.IncrementalAlterConfig(resources[with.Kind], with.Name, changes, false)
}

func replaceConfig(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	return nil, admin.AlterConfig(resources[with.Kind], with.Name, with.Configs, false)
}

func listGroups(admin sarama.ClusterAdmin, _ driver.Admin) (any, error) {
	groups, err := admin.ListConsumerGroups()
	names := []string{}
	for name := range groups {
		names = append(names, name)
	}
	return names, err
}

func describeGroup(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	groups, err := admin.DescribeConsumerGroups([]string{with.Group})
	if err != nil {
		return nil, err
	}
	members := []map[string]any{}
	for _, member := range groups[0].Members {
		assignment, err := member.GetMemberAssignment()
		if err != nil {
			return nil, err
		}
		owned := [][]any{}
		for topic, indexes := range assignment.Topics {
			for _, index := range indexes {
				owned = append(owned, []any{topic, index})
			}
		}
		members = append(members, map[string]any{"client_id": member.ClientId, "partitions": owned})
	}
	return map[string]any{"state": groups[0].State, "members": members}, nil
}

func deleteGroup(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	return nil, admin.DeleteConsumerGroup(with.Group)
}

func groupOffsets(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	committed, err := admin.ListConsumerGroupOffsets(with.Group, nil)
	if err != nil {
		return nil, err
	}
	places := [][]any{}
	for topic, partitions := range committed.Blocks {
		for index, block := range partitions {
			places = append(places, []any{topic, index, block.Offset})
		}
	}
	return places, nil
}

func alterOffsets(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{}
	for _, place := range with.Offsets {
		if wanted[place.Topic] == nil {
			wanted[place.Topic] = map[int32]sarama.OffsetAndMetadata{}
		}
		wanted[place.Topic][place.Partition] = sarama.OffsetAndMetadata{Offset: place.Offset, LeaderEpoch: -1}
	}
	_, err := admin.AlterConsumerGroupOffsets(with.Group, wanted, nil)
	return nil, err
}

func deleteOffsets(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	return nil, admin.DeleteConsumerGroupOffset(with.Group, with.Topic, with.Partition)
}

func listOffset(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	at := with.At.Time
	switch with.At.Word {
	case "earliest":
		at = sarama.OffsetOldest
	case "latest":
		at = sarama.OffsetNewest
	}
	asked := map[string]map[int32]int64{with.Topic: {with.Partition: at}}
	found, err := admin.ListOffsets(asked, nil)
	if err != nil {
		return nil, err
	}
	return found[with.Topic][with.Partition].Offset, nil
}

func deleteRecords(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	return nil, admin.DeleteRecords(with.Topic, map[int32]int64{with.Partition: with.Before})
}

func describeCluster(admin sarama.ClusterAdmin, _ driver.Admin) (any, error) {
	described, controller, err := admin.DescribeCluster()
	brokers := [][]any{}
	for _, broker := range described {
		host, port, err := net.SplitHostPort(broker.Addr())
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		brokers = append(brokers, []any{broker.ID(), host, number})
	}
	return map[string]any{"controller": controller, "brokers": brokers}, err
}

func logDirs(admin sarama.ClusterAdmin, _ driver.Admin) (any, error) {
	described, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, broker := range described {
		ids = append(ids, broker.ID())
	}
	folders, err := admin.DescribeLogDirs(ids)
	sizes := [][]any{}
	for _, ofBroker := range folders {
		for _, folder := range ofBroker {
			for _, topic := range folder.Topics {
				for _, partition := range topic.Partitions {
					sizes = append(sizes, []any{topic.Topic, partition.PartitionID, partition.Size})
				}
			}
		}
	}
	return sizes, err
}

func setQuota(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	entity := []sarama.QuotaEntityComponent{{
		EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: with.ClientID,
	}}
	for key, limit := range with.Limits {
		change := sarama.ClientQuotasOp{Key: key, Remove: limit == nil}
		if limit != nil {
			change.Value = *limit
		}
		if err := admin.AlterClientQuotas(entity, change, false); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func quotas(admin sarama.ClusterAdmin, with driver.Admin) (any, error) {
	asked := sarama.QuotaFilterComponent{
		EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: with.ClientID,
	}
	described, err := admin.DescribeClientQuotas([]sarama.QuotaFilterComponent{asked}, true)
	limits := map[string]float64{}
	for _, entry := range described {
		for key, value := range entry.Values {
			limits[key] = value
		}
	}
	return limits, err
}
