package main

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"penstock/clients/driver"
)

type act func(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error)

func (it *franz) addAdministration(commands driver.Commands) {
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
			client, err := it.admin(with.Bootstrap)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
			defer cancel()
			return do(ctx, kadm.NewClient(client), with)
		})
	}
}

func (it *franz) admin(bootstrap string) (*kgo.Client, error) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	if client, known := it.admins[bootstrap]; known {
		return client, nil
	}
	client, err := kgo.NewClient(settings(bootstrap)...)
	if err == nil {
		it.admins[bootstrap] = client
	}
	return client, err
}

func createTopic(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	_, err := admin.CreateTopic(ctx, with.Partitions, 1, with.Configs, with.Topic)
	return nil, err
}

func deleteTopic(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	_, err := admin.DeleteTopic(ctx, with.Topic)
	return nil, err
}

func createPartitions(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	answers, err := admin.UpdatePartitions(ctx, int(with.Count), with.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func listTopics(ctx context.Context, admin *kadm.Client, _ driver.Admin) (any, error) {
	topics, err := admin.ListTopics(uncached(ctx))
	return topics.Names(), err
}

func describeTopic(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	topics, err := admin.ListTopics(uncached(ctx), with.Topic)
	return map[string]int{"partitions": len(topics[with.Topic].Partitions)}, err
}

func describeConfig(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var described kadm.ResourceConfigs
	var err error
	if with.Kind == "broker" {
		broker, _ := strconv.Atoi(with.Name)
		described, err = admin.DescribeBrokerConfigs(ctx, int32(broker))
	} else {
		described, err = admin.DescribeTopicConfigs(ctx, with.Name)
	}
	if err != nil {
		return nil, err
	}
	settings := map[string]*string{}
	for _, config := range described[0].Configs {
		settings[config.Key] = config.Value
	}
	return settings, described[0].Err
}

func alterConfig(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var changes []kadm.AlterConfig
	for name, value := range with.Change {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value}
		if value == nil {
			change.Op = kadm.DeleteConfig
		}
		changes = append(changes, change)
	}
	answers, err := admin.AlterTopicConfigs(ctx, changes, with.Name)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func replaceConfig(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var wanted []kadm.AlterConfig
	for name, value := range with.Configs {
		wanted = append(wanted, kadm.AlterConfig{Name: name, Value: value})
	}
	answers, err := admin.AlterTopicConfigsState(ctx, wanted, with.Name)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func listGroups(ctx context.Context, admin *kadm.Client, _ driver.Admin) (any, error) {
	groups, err := admin.ListGroups(ctx)
	return groups.Groups(), err
}

func describeGroup(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	groups, err := admin.DescribeGroups(ctx, with.Group)
	if err != nil {
		return nil, err
	}
	group := groups[with.Group]
	members := []map[string]any{}
	for _, member := range group.Members {
		owned := [][]any{}
		if assigned, known := member.Assigned.AsConsumer(); known {
			for _, topic := range assigned.Topics {
				for _, index := range topic.Partitions {
					owned = append(owned, []any{topic.Topic, index})
				}
			}
		}
		members = append(members, map[string]any{"client_id": member.ClientID, "partitions": owned})
	}
	return map[string]any{"state": group.State, "members": members}, group.Err
}

func deleteGroup(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	answer, err := admin.DeleteGroup(ctx, with.Group)
	if err != nil {
		return nil, err
	}
	return nil, answer.Err
}

func groupOffsets(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	committed, err := admin.FetchOffsets(ctx, with.Group)
	places := [][]any{}
	committed.Each(func(answer kadm.OffsetResponse) {
		places = append(places, []any{answer.Topic, answer.Partition, answer.At})
	})
	return places, err
}

func alterOffsets(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var wanted kadm.Offsets
	for _, place := range with.Offsets {
		wanted.AddOffset(place.Topic, place.Partition, place.Offset, -1)
	}
	return nil, admin.CommitAllOffsets(ctx, with.Group, wanted)
}

func deleteOffsets(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var places kadm.TopicsSet
	places.Add(with.Topic, with.Partition)
	answers, err := admin.DeleteOffsets(ctx, with.Group, places)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func listOffset(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch {
	case with.At.Time != 0:
		listed, err = admin.ListOffsetsAfterMilli(ctx, with.At.Time, with.Topic)
	case with.At.Word == "earliest":
		listed, err = admin.ListStartOffsets(ctx, with.Topic)
	case with.At.Word == "latest":
		listed, err = admin.ListEndOffsets(ctx, with.Topic)
	default:
		listed, err = admin.ListMaxTimestampOffsets(ctx, with.Topic)
	}
	if err != nil {
		return nil, err
	}
	found, _ := listed.Lookup(with.Topic, with.Partition)
	return found.Offset, found.Err
}

func deleteRecords(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	var before kadm.Offsets
	before.AddOffset(with.Topic, with.Partition, with.Before, -1)
	answers, err := admin.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	answer, _ := answers.Lookup(with.Topic, with.Partition)
	return answer.LowWatermark, answer.Err
}

func describeCluster(ctx context.Context, admin *kadm.Client, _ driver.Admin) (any, error) {
	metadata, err := admin.BrokerMetadata(ctx)
	brokers := [][]any{}
	for _, broker := range metadata.Brokers {
		brokers = append(brokers, []any{broker.NodeID, broker.Host, broker.Port})
	}
	return map[string]any{"cluster_id": metadata.Cluster, "controller": metadata.Controller, "brokers": brokers}, err
}

func logDirs(ctx context.Context, admin *kadm.Client, _ driver.Admin) (any, error) {
	described, err := admin.DescribeAllLogDirs(ctx, nil)
	sizes := [][]any{}
	described.Each(func(folder kadm.DescribedLogDir) {
		folder.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
			sizes = append(sizes, []any{partition.Topic, partition.Partition, partition.Size})
		})
	})
	return sizes, err
}

func setQuota(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	entry := kadm.AlterClientQuotaEntry{Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &with.ClientID}}}
	for key, limit := range with.Limits {
		change := kadm.AlterClientQuotaOp{Key: key, Remove: limit == nil}
		if limit != nil {
			change.Value = *limit
		}
		entry.Ops = append(entry.Ops, change)
	}
	answers, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{entry})
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func quotas(ctx context.Context, admin *kadm.Client, with driver.Admin) (any, error) {
	asked := kadm.DescribeClientQuotaComponent{Type: "client-id", MatchName: &with.ClientID}
	described, err := admin.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{asked})
	limits := map[string]float64{}
	for _, entity := range described {
		for _, value := range entity.Values {
			limits[value.Key] = value.Value
		}
	}
	return limits, err
}

// What kadm asks is answered from a cache, unless the answer must tell what we may do.
func uncached(ctx context.Context) context.Context { return kadm.WithAuthorizedOps(ctx) }
