package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"penstock/clients/driver"
)

const fetchKey = 1

var balancers = map[string]kgo.GroupBalancer{
	"":            kgo.RangeBalancer(),
	"range":       kgo.RangeBalancer(),
	"roundrobin":  kgo.RoundRobinBalancer(),
	"sticky":      kgo.StickyBalancer(),
	"cooperative": kgo.CooperativeStickyBalancer(),
}

// A consumer that polls by itself and tells what it is given.
type consumer struct {
	name   string
	client *kgo.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// Says when the first fetch was answered: from then on the position is known.
type firstFetch struct {
	once sync.Once
	done chan struct{}
}

func (first *firstFetch) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, _ kgo.BrokerE2E) {
	if key == fetchKey {
		first.once.Do(func() { close(first.done) })
	}
}

func (it *franz) openConsumer(with driver.OpenConsumer) (any, error) {
	opened := &consumer{name: with.Consumer}
	first := &firstFetch{done: make(chan struct{})}
	options := settings(with.Bootstrap,
		kgo.ClientID(with.Consumer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.FetchIsolationLevel(isolation(with.Isolation)),
		kgo.WithHooks(first),
	)
	if with.Assign != nil {
		place := map[int32]kgo.Offset{with.Assign.Partition: offset(with.Assign.Start)}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{with.Assign.Topic: place}))
	} else {
		options = append(options, opened.membership(with)...)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	opened.client, opened.stop = client, stop
	it.mutex.Lock()
	it.consumers[with.Consumer] = opened
	it.mutex.Unlock()
	opened.ended.Go(func() { opened.poll(ctx) })
	if with.Assign != nil && with.Assign.Start.Word == "end" {
		<-first.done
	}
	return nil, nil
}

func (opened *consumer) membership(with driver.OpenConsumer) []kgo.Opt {
	session := with.SessionTimeoutMs
	if session == 0 {
		session = 10_000
	}
	tell := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			driver.Tell(map[string]any{"consumer": opened.name, what: names(partitions)})
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(with.Group),
		kgo.ConsumeTopics(with.Topics...),
		kgo.Balancers(balancers[with.Strategy]),
		kgo.SessionTimeout(time.Duration(session) * time.Millisecond),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("revoked")),
	}
	if with.InstanceID != "" {
		options = append(options, kgo.InstanceID(with.InstanceID))
	}
	return options
}

func (opened *consumer) poll(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := opened.client.PollFetches(ctx)
		var told [][]any
		fetches.EachRecord(func(record *kgo.Record) {
			headers := [][]any{}
			for _, header := range record.Headers {
				headers = append(headers, []any{header.Key, header.Value})
			}
			told = append(told, []any{
				record.Topic, record.Partition, record.Offset, record.Timestamp.UnixMilli(),
				record.Key, record.Value, headers,
			})
		})
		if told != nil {
			driver.Tell(map[string]any{"consumer": opened.name, "records": told})
		}
		for _, failed := range fetches.Errors() {
			var broker *kerr.Error
			if errors.As(failed.Err, &broker) && !broker.Retriable {
				driver.Tell(map[string]any{"consumer": opened.name, "failed": failed.Err.Error()})
				return
			}
		}
	}
}

func (opened *consumer) close() {
	opened.stop()
	opened.ended.Wait()
	opened.client.Close()
}

func (it *franz) commit(with driver.Named) (any, error) {
	it.mutex.Lock()
	opened := it.consumers[with.Consumer]
	it.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	return nil, opened.client.CommitUncommittedOffsets(ctx)
}

func (it *franz) closeConsumer(with driver.Named) (any, error) {
	it.mutex.Lock()
	opened := it.consumers[with.Consumer]
	delete(it.consumers, with.Consumer)
	it.mutex.Unlock()
	opened.close()
	return nil, nil
}

func isolation(name string) kgo.IsolationLevel {
	if name == "read_committed" {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

func offset(start driver.Start) kgo.Offset {
	switch {
	case start.Time != 0:
		return kgo.NewOffset().AfterMilli(start.Time)
	case start.Word == "beginning":
		return kgo.NewOffset().AtStart()
	case start.Word == "end":
		return kgo.NewOffset().AtEnd()
	default:
		return kgo.NewOffset().At(start.Offset)
	}
}

func names(partitions map[string][]int32) [][]any {
	all := [][]any{}
	for topic, indexes := range partitions {
		for _, index := range indexes {
			all = append(all, []any{topic, index})
		}
	}
	return all
}
