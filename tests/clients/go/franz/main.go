// franz-go behind the vocabulary of drivers.
package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"penstock/clients/driver"
)

const (
	callDeadline = 40 * time.Second
	recordBytes  = 40 // about what one of our numbered records takes in a batch, to turn their number into bytes
)

var compressions = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acknowledgements = map[string]kgo.Acks{"": kgo.AllISRAcks(), "all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}

type franz struct {
	mutex     sync.Mutex
	producers map[string]*kgo.Client
	consumers map[string]*consumer
	admins    map[string]*kgo.Client
}

func main() {
	it := &franz{
		producers: map[string]*kgo.Client{},
		consumers: map[string]*consumer{},
		admins:    map[string]*kgo.Client{},
	}
	commands := driver.Commands{
		"open_producer":     driver.With(it.openProducer),
		"send":              driver.With(it.send),
		"begin_transaction": driver.With(it.beginTransaction),
		"end_transaction":   driver.With(it.endTransaction),
		"close_producer":    driver.With(it.closeProducer),
		"open_consumer":     driver.With(it.openConsumer),
		"commit":            driver.With(it.commit),
		"close_consumer":    driver.With(it.closeConsumer),
		"close_all":         driver.With(it.closeAll),
	}
	it.addAdministration(commands)
	driver.Serve(commands)
}

// A client in a test comes back at once, and looks for new topics often.
func settings(bootstrap string, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.MetadataMaxAge(300 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}, more...)
}

func (it *franz) openProducer(with driver.OpenProducer) (any, error) {
	options := settings(with.Bootstrap,
		kgo.ProducerBatchCompression(compressions[with.Compression]),
		kgo.RequiredAcks(acknowledgements[with.Acks]),
		kgo.RecordPartitioner(partitioner{kgo.StickyKeyPartitioner(nil)}),
	)
	if !with.Idempotent && with.TransactionalID == "" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if with.BatchRecords > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(with.BatchRecords*recordBytes)))
	}
	if with.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(with.TransactionalID))
	}
	if with.TransactionTimeoutMs > 0 {
		options = append(options, kgo.TransactionTimeout(time.Duration(with.TransactionTimeoutMs)*time.Millisecond))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	it.mutex.Lock()
	it.producers[with.Producer] = client
	it.mutex.Unlock()
	if with.TransactionalID != "" {
		ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
		defer cancel()
		_, _, err = client.ProducerID(ctx)
	}
	return nil, err
}

func (it *franz) send(with driver.Send) (any, error) {
	it.mutex.Lock()
	client := it.producers[with.Producer]
	it.mutex.Unlock()
	records := make([]*kgo.Record, len(with.Records))
	for number, sent := range with.Records {
		record := &kgo.Record{Topic: with.Topic, Key: sent.Key, Value: sent.Value, Partition: anyPartition}
		for _, header := range sent.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		if sent.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*sent.Timestamp)
		}
		if sent.Partition != nil {
			record.Partition = *sent.Partition
		}
		records[number] = record
	}
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	places := make([][2]int64, len(records))
	for number, record := range records {
		places[number] = [2]int64{int64(record.Partition), record.Offset}
	}
	return places, nil
}

func (it *franz) beginTransaction(with driver.Named) (any, error) {
	it.mutex.Lock()
	client := it.producers[with.Producer]
	it.mutex.Unlock()
	return nil, client.BeginTransaction()
}

func (it *franz) endTransaction(with driver.EndTransaction) (any, error) {
	it.mutex.Lock()
	client := it.producers[with.Producer]
	it.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	return nil, client.EndTransaction(ctx, kgo.TransactionEndTry(with.Commit))
}

func (it *franz) closeProducer(with driver.Named) (any, error) {
	it.mutex.Lock()
	client := it.producers[with.Producer]
	delete(it.producers, with.Producer)
	it.mutex.Unlock()
	client.Close()
	return nil, nil
}

func (it *franz) closeAll(struct{}) (any, error) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	for _, opened := range it.consumers {
		opened.close()
	}
	for _, client := range it.producers {
		client.Close()
	}
	for _, client := range it.admins {
		client.Close()
	}
	clear(it.consumers)
	clear(it.producers)
	clear(it.admins)
	return nil, nil
}

const anyPartition = -1

// Takes the partition a record names, and else the one its key has.
type partitioner struct{ kgo.Partitioner }

type topicPartitioner struct{ kgo.TopicPartitioner }

func (mine partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{mine.Partitioner.ForTopic(topic)}
}

func (mine topicPartitioner) RequiresConsistency(*kgo.Record) bool { return true }

func (mine topicPartitioner) Partition(record *kgo.Record, count int) int {
	if record.Partition != anyPartition {
		return int(record.Partition)
	}
	return mine.TopicPartitioner.Partition(record, count)
}
