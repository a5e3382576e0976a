// sarama behind the vocabulary of drivers.
package main

import (
	"errors"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"penstock/clients/driver"
)

const (
	quick   = 20 * time.Millisecond
	retries = 500 // as many as fit into a test's deadline
)

var compressions = map[string]sarama.CompressionCodec{
	"":       sarama.CompressionNone,
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var acknowledgements = map[string]sarama.RequiredAcks{
	"": sarama.WaitForAll, "all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse,
}

type driven struct {
	mutex     sync.Mutex
	producers map[string]sarama.AsyncProducer
	consumers map[string]consumer
	admins    map[string]sarama.ClusterAdmin
}

func main() {
	sarama.Logger = log.New(os.Stderr, "", log.Ltime|log.Lmicroseconds)
	it := &driven{
		producers: map[string]sarama.AsyncProducer{},
		consumers: map[string]consumer{},
		admins:    map[string]sarama.ClusterAdmin{},
	}
	commands := driver.Commands{
		"open_producer":     driver.With(it.openProducer),
		"send":              driver.With(it.send),
		"begin_transaction": driver.With(it.beginTransaction),
		"send_offsets":      driver.With(it.sendOffsets),
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
func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Metadata.Retry.Max = retries
	config.Metadata.Retry.Backoff = quick
	config.Metadata.RefreshFrequency = 300 * time.Millisecond
	return config
}

func (it *driven) openProducer(with driver.OpenProducer) (any, error) {
	config := settings()
	config.Producer.Compression = compressions[with.Compression]
	config.Producer.RequiredAcks = acknowledgements[with.Acks]
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = retries
	config.Producer.Retry.Backoff = quick
	config.Producer.Flush.MaxMessages = with.BatchRecords
	config.Producer.Partitioner = newPartitioner
	if with.Idempotent || with.TransactionalID != "" {
		config.Producer.Idempotent = true
		config.Producer.Transaction.ID = with.TransactionalID
		config.Producer.Transaction.Retry.Max = retries
		config.Producer.Transaction.Retry.Backoff = quick
		if with.TransactionTimeoutMs > 0 {
			config.Producer.Transaction.Timeout = time.Duration(with.TransactionTimeoutMs) * time.Millisecond
		}
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewAsyncProducer(strings.Split(with.Bootstrap, ","), config)
	if err != nil {
		return nil, err
	}
	it.mutex.Lock()
	defer it.mutex.Unlock()
	it.producers[with.Producer] = producer
	return nil, nil
}

func (it *driven) send(with driver.Send) (any, error) {
	it.mutex.Lock()
	producer := it.producers[with.Producer]
	it.mutex.Unlock()
	go func() {
		for number, record := range with.Records {
			producer.Input() <- message(with.Topic, number, record)
		}
	}()
	places := make([][2]int64, len(with.Records))
	for range with.Records {
		select {
		case sent := <-producer.Successes():
			places[sent.Metadata.(int)] = [2]int64{int64(sent.Partition), sent.Offset}
		case failed := <-producer.Errors():
			return nil, failed.Err
		}
	}
	return places, nil
}

func message(topic string, number int, record driver.Record) *sarama.ProducerMessage {
	sent := &sarama.ProducerMessage{Topic: topic, Metadata: number, Partition: anyPartition}
	// A nil slice inside an interface would not be null any more.
	if record.Key != nil {
		sent.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		sent.Value = sarama.ByteEncoder(record.Value)
	}
	for _, header := range record.Headers {
		sent.Headers = append(sent.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	if record.Timestamp != nil {
		sent.Timestamp = time.UnixMilli(*record.Timestamp)
	}
	if record.Partition != nil {
		sent.Partition = *record.Partition
	}
	return sent
}

func (it *driven) beginTransaction(with driver.Named) (any, error) {
	it.mutex.Lock()
	producer := it.producers[with.Producer]
	it.mutex.Unlock()
	return nil, producer.BeginTxn()
}

func (it *driven) sendOffsets(with driver.SendOffsets) (any, error) {
	it.mutex.Lock()
	producer := it.producers[with.Producer]
	it.mutex.Unlock()
	reached := map[string][]*sarama.PartitionOffsetMetadata{}
	for _, place := range with.Offsets {
		one := &sarama.PartitionOffsetMetadata{Partition: place.Partition, Offset: place.Offset, LeaderEpoch: -1}
		reached[place.Topic] = append(reached[place.Topic], one)
	}
	return nil, producer.AddOffsetsToTxn(reached, with.Group)
}

func (it *driven) endTransaction(with driver.EndTransaction) (any, error) {
	it.mutex.Lock()
	producer := it.producers[with.Producer]
	it.mutex.Unlock()
	if with.Commit {
		return nil, producer.CommitTxn()
	}
	return nil, producer.AbortTxn()
}

func (it *driven) closeProducer(with driver.Named) (any, error) {
	it.mutex.Lock()
	producer := it.producers[with.Producer]
	delete(it.producers, with.Producer)
	it.mutex.Unlock()
	return nil, producer.Close()
}

func (it *driven) closeAll(struct{}) (any, error) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	var failures []error
	for _, opened := range it.consumers {
		failures = append(failures, opened.close())
	}
	for _, producer := range it.producers {
		producer.AsyncClose()
	}
	for _, admin := range it.admins {
		failures = append(failures, admin.Close())
	}
	clear(it.consumers)
	clear(it.producers)
	clear(it.admins)
	return nil, errors.Join(failures...)
}

const anyPartition = -1

// Takes the partition a message names, and else the one its key has.
type partitioner struct{ byKey sarama.Partitioner }

func newPartitioner(topic string) sarama.Partitioner {
	return partitioner{sarama.NewHashPartitioner(topic)}
}

func (mine partitioner) RequiresConsistency() bool { return true }

func (mine partitioner) Partition(message *sarama.ProducerMessage, count int32) (int32, error) {
	if message.Partition != anyPartition {
		return message.Partition, nil
	}
	return mine.byKey.Partition(message, count)
}
