package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"penstock/clients/driver"
)

type consumer interface {
	commit() error
	close() error
}

var strategies = map[string]sarama.BalanceStrategy{
	"":            sarama.NewBalanceStrategyRange(),
	"range":       sarama.NewBalanceStrategyRange(),
	"roundrobin":  sarama.NewBalanceStrategyRoundRobin(),
	"sticky":      sarama.NewBalanceStrategySticky(),
	"cooperative": sarama.NewBalanceStrategyCooperativeSticky(),
}

func (it *driven) openConsumer(with driver.OpenConsumer) (any, error) {
	config := settings()
	config.ClientID = with.Consumer
	config.Consumer.Retry.Backoff = quick
	config.Consumer.MaxWaitTime = 100 * time.Millisecond // a consumer ends only when its last fetch has
	config.Consumer.Return.Errors = true
	if with.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	open := openMember
	if with.Assign != nil {
		open = openReader
	}
	opened, err := open(with, config)
	if err != nil {
		return nil, err
	}
	it.mutex.Lock()
	defer it.mutex.Unlock()
	it.consumers[with.Consumer] = opened
	return nil, nil
}

func (it *driven) commit(with driver.Named) (any, error) {
	it.mutex.Lock()
	opened := it.consumers[with.Consumer]
	it.mutex.Unlock()
	return nil, opened.commit()
}

func (it *driven) closeConsumer(with driver.Named) (any, error) {
	it.mutex.Lock()
	opened := it.consumers[with.Consumer]
	delete(it.consumers, with.Consumer)
	it.mutex.Unlock()
	return nil, opened.close()
}

// A member of a group: sarama calls it for every partition it owns.
type member struct {
	name    string
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	ended   sync.WaitGroup
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	failure error
}

func openMember(with driver.OpenConsumer, config *sarama.Config) (consumer, error) {
	session := with.SessionTimeoutMs
	if session == 0 {
		session = 10_000
	}
	config.Consumer.Group.Session.Timeout = time.Duration(session) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[with.Strategy]}
	config.Consumer.Group.Rebalance.Retry.Max = retries
	config.Consumer.Group.Rebalance.Retry.Backoff = quick
	config.Consumer.Group.InstanceId = with.InstanceID
	group, err := sarama.NewConsumerGroup(strings.Split(with.Bootstrap, ","), with.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	opened := &member{name: with.Consumer, group: group, stop: stop}
	opened.ended.Go(func() {
		for err := range group.Errors() {
			opened.note(err)
		}
	})
	opened.ended.Go(func() {
		// A session lasts until the next rebalance.
		for ctx.Err() == nil {
			if err := group.Consume(ctx, with.Topics, opened); err != nil {
				opened.note(err)
			}
		}
	})
	return opened, nil
}

func (mine *member) note(err error) {
	mine.mutex.Lock()
	defer mine.mutex.Unlock()
	mine.failure = err
}

func (mine *member) Setup(session sarama.ConsumerGroupSession) error {
	mine.mutex.Lock()
	defer mine.mutex.Unlock()
	mine.session = session
	return nil
}

func (mine *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (mine *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	place := [][]any{{claim.Topic(), claim.Partition()}}
	driver.Tell(map[string]any{"consumer": mine.name, "assigned": place})
	for message := range claim.Messages() {
		// Told one by one: the next may be long in coming.
		driver.Tell(map[string]any{"consumer": mine.name, "records": [][]any{told(message)}})
		session.MarkMessage(message, "")
	}
	driver.Tell(map[string]any{"consumer": mine.name, "revoked": place})
	return nil
}

// sarama's own Commit says nothing when it fails; the error comes by the way of all others.
func (mine *member) commit() error {
	mine.mutex.Lock()
	session := mine.session
	mine.failure = nil
	mine.mutex.Unlock()
	session.Commit()
	mine.mutex.Lock()
	defer mine.mutex.Unlock()
	return mine.failure
}

func (mine *member) close() error {
	mine.stop()
	err := mine.group.Close()
	mine.ended.Wait()
	return err
}

// A reader of one partition.
type reader struct {
	client    sarama.Client
	consumer  sarama.Consumer
	partition sarama.PartitionConsumer
	ended     sync.WaitGroup
}

func openReader(with driver.OpenConsumer, config *sarama.Config) (consumer, error) {
	client, err := sarama.NewClient(strings.Split(with.Bootstrap, ","), config)
	if err != nil {
		return nil, err
	}
	reading, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	start, err := offset(client, *with.Assign)
	if err != nil {
		return nil, err
	}
	partition, err := reading.ConsumePartition(with.Assign.Topic, with.Assign.Partition, start)
	if err != nil {
		return nil, err
	}
	opened := &reader{client: client, consumer: reading, partition: partition}
	opened.ended.Go(func() {
		for message := range partition.Messages() {
			driver.Tell(map[string]any{"consumer": with.Consumer, "records": [][]any{told(message)}})
		}
	})
	return opened, nil
}

func offset(client sarama.Client, assign driver.Assign) (int64, error) {
	switch {
	case assign.Start.Time != 0:
		return client.GetOffset(assign.Topic, assign.Partition, assign.Start.Time)
	case assign.Start.Word == "beginning":
		return sarama.OffsetOldest, nil
	case assign.Start.Word == "end":
		return sarama.OffsetNewest, nil
	default:
		return assign.Start.Offset, nil
	}
}

func (mine *reader) commit() error { return errors.New("a reader has no group") }

func (mine *reader) close() error {
	err := errors.Join(mine.partition.Close(), mine.consumer.Close(), mine.client.Close())
	mine.ended.Wait()
	return err
}

func told(message *sarama.ConsumerMessage) []any {
	headers := [][]any{}
	for _, header := range message.Headers {
		headers = append(headers, []any{string(header.Key), header.Value})
	}
	return []any{
		message.Topic, message.Partition, message.Offset, message.Timestamp.UnixMilli(),
		message.Key, message.Value, headers,
	}
}
