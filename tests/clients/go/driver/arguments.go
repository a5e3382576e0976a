package driver

import (
	"encoding/json"
	"errors"
)

// Header of a record, a pair in JSON.
type Header struct {
	Name  string
	Value []byte
}

// UnmarshalJSON reads the pair.
func (header *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&header.Name, &header.Value})
}

// Record to be sent. A nil slice is null, an empty one is empty.
type Record struct {
	Key, Value []byte
	Headers    []Header
	Timestamp  *int64
	Partition  *int32
}

// OpenProducer opens a producer under a name.
type OpenProducer struct {
	Producer, Bootstrap string
	Compression, Acks   string
	Idempotent          bool
	TransactionalID     string `json:"transactional_id"`
	BatchRecords        int    `json:"batch_records"`
	// How long a transaction may stay open.
	TransactionTimeoutMs int `json:"transaction_timeout_ms"`
}

// Send sends records and waits for all of them.
type Send struct {
	Producer, Topic string
	Records         []Record
}

// SendOffsets takes a group's offsets into the transaction of a producer.
type SendOffsets struct {
	Producer, Consumer, Group string
	Offsets                   []Place
}

// EndTransaction commits or aborts.
type EndTransaction struct {
	Producer string
	Commit   bool
}

// Start of a reader: an offset, "beginning", "end", or a time.
type Start struct {
	Offset int64
	Word   string
	Time   int64
}

// UnmarshalJSON reads any of the three.
func (start *Start) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &start.Offset) == nil || json.Unmarshal(data, &start.Word) == nil {
		return nil
	}
	var at struct{ Time int64 }
	if json.Unmarshal(data, &at) != nil || at.Time == 0 {
		return errors.New("neither an offset, nor a word, nor a time")
	}
	start.Time = at.Time
	return nil
}

// Assign is the one partition a reader reads.
type Assign struct {
	Topic     string
	Partition int32
	Start     Start
}

// OpenConsumer opens a consumer under a name: a member of a group, or a reader of one partition.
type OpenConsumer struct {
	Consumer, Bootstrap string
	Group               string
	Topics              []string
	Assign              *Assign
	Reset, Strategy     string
	InstanceID          string `json:"instance_id"`
	SessionTimeoutMs    int    `json:"session_timeout_ms"`
	Isolation           string
}

// Named is a producer or a consumer.
type Named struct{ Producer, Consumer string }

// Admin is what administration is told; each command takes what it needs.
type Admin struct {
	Bootstrap, Topic, Group, Kind, Name string
	Partitions, Partition, Count        int32
	Configs, Change                     map[string]*string
	Before                              int64
	At                                  Start
	Offsets                             []Place
	ClientID                            string `json:"client_id"`
	Limits                              map[string]*float64
}

// Place is an offset in a partition, a triple in JSON.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// UnmarshalJSON reads the triple.
func (place *Place) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&place.Topic, &place.Partition, &place.Offset})
}
