// SPDX-License-Identifier: Apache-2.0

package db

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/mailstead/mailstead/internal/fault"
)

// ID identifies a row. In the database it is an integer in the order of time, so that an index
// grows at its right edge: 41 bits of milliseconds since 2024, 10 bits of node, 12 bits of
// sequence. Clients see it as a UUIDv7 (RFC 9562 §5.7) that is computed from it, so that no
// second, wide index is needed. IDs are not secret: every look-up also checks the account.
type ID int64

const (
	idEpoch  = 1704067200000 // 2024-01-01 in Unix milliseconds
	nodeBits = 10
	seqBits  = 12
	maxSeq   = 1<<seqBits - 1

	// MaxNode is the highest number of a node.
	MaxNode = 1<<nodeBits - 1
)

// Time returns when the id was generated, to the millisecond.
func (id ID) Time() time.Time {
	return time.UnixMilli(int64(id)>>(nodeBits+seqBits) + idEpoch).UTC()
}

// MinIDAt returns the lowest id that can be generated at t; 0 for a time before the epoch of ids.
func MinIDAt(t time.Time) ID {
	ms := t.UnixMilli() - idEpoch
	return ID(min(max(ms, 0), 1<<41-1) << (nodeBits + seqBits))
}

// String returns the UUIDv7 form.
func (id ID) String() string {
	var b [36]byte
	id.encode(&b)
	return string(b[:])
}

// MarshalText returns the UUIDv7 form, so that ids are strings in JSON.
func (id ID) MarshalText() ([]byte, error) {
	var b [36]byte
	id.encode(&b)
	return b[:], nil
}

// UnmarshalText reads the UUIDv7 form.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

func (id ID) encode(dst *[36]byte) {
	ms := uint64(id)>>(nodeBits+seqBits) + idEpoch
	node := uint64(id) >> seqBits & MaxNode
	seq := uint64(id) & maxSeq
	// 62 bits: the node, then bits of a hash of the id, which ParseID checks.
	low := node<<52 | mix64(uint64(id))>>12
	var u [16]byte
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6], u[7] = 0x70|byte(seq>>8), byte(seq)
	for i := range 8 {
		u[8+i] = byte(low >> (56 - 8*i))
	}
	u[8] = u[8]&0x3f | 0x80
	hex.Encode(dst[0:8], u[0:4])
	hex.Encode(dst[9:13], u[4:6])
	hex.Encode(dst[14:18], u[6:8])
	hex.Encode(dst[19:23], u[8:10])
	hex.Encode(dst[24:36], u[10:16])
	dst[8], dst[13], dst[18], dst[23] = '-', '-', '-', '-'
}

// ParseID parses the UUIDv7 form, case-insensitively (RFC 9562 §4). Anything else is a
// fault.NotFound, as is a UUID that String never returns: no row can have that id.
func ParseID(s string) (ID, error) {
	none := fault.New(fault.NotFound, "not_found", "There is nothing with this id.")
	if len(s) != 36 {
		return 0, none
	}
	var u [16]byte
	for i, r := range [5][2]int{{0, 8}, {9, 13}, {14, 18}, {19, 23}, {24, 36}} {
		at := [5]int{0, 4, 6, 8, 10}[i]
		if _, err := hex.Decode(u[at:], []byte(s[r[0]:r[1]])); err != nil {
			return 0, none
		}
	}
	ms := uint64(0)
	for i := range 6 {
		ms = ms<<8 | uint64(u[i])
	}
	seq := uint64(u[6]&0x0f)<<8 | uint64(u[7])
	node := uint64(u[8]&0x3f)<<4 | uint64(u[9])>>4
	if ms < idEpoch || ms-idEpoch >= 1<<41 {
		return 0, none
	}
	id := ID((ms-idEpoch)<<(nodeBits+seqBits) | node<<seqBits | seq)
	if id.String() != strings.ToLower(s) {
		return 0, none
	}
	return id, nil
}

// mix64 is the finaliser of splitmix64: a bijection that spreads the bits.
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// idGenerator generates IDs that are unique across nodes and increase within this one.
type idGenerator struct {
	mu   sync.Mutex
	node int64
	last int64 // milliseconds<<seqBits | sequence
	now  func() time.Time
}

func (s *idGenerator) next() ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	// When the clock stops or goes back, the sequence runs on into future
	// milliseconds: ids stay unique and increasing.
	at := (s.now().UnixMilli() - idEpoch) << seqBits
	s.last = max(at, s.last+1)
	return ID(s.last>>seqBits<<(nodeBits+seqBits) | s.node<<seqBits | s.last&maxSeq)
}

// LastIDTime returns the time in the last id, in microseconds.
func (d *DB) LastIDTime() int64 {
	s := &d.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.last>>seqBits + idEpoch) * 1000
}

// StartIDs sets the node that generates ids here, from now on only ids later than t.
func (d *DB) StartIDs(node int64, t time.Time) {
	s := &d.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = node
	s.last = max(s.last, (t.UnixMilli()-idEpoch)<<seqBits|maxSeq)
}

// ScanID reads a row that is an id, for All.
func ScanID(r Row) (id ID, err error) { return id, r.Scan(&id) }

// Micros returns a time as a column stores it: microseconds since 1970, 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Time is the reverse of Micros, in UTC.
func Time(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// TimeScanner returns a destination for Row.Scan that reads a column that Micros wrote.
func TimeScanner(t *time.Time) any { return (*timestamp)(t) }

type timestamp time.Time

// Scan implements sql.Scanner, for SQLite.
func (t *timestamp) Scan(micros any) error {
	n, ok := micros.(int64)
	if !ok {
		return fmt.Errorf("%T instead of a time", micros)
	}
	return t.ScanInt64(pgtype.Int8{Int64: n})
}

// ScanInt64 implements pgtype.Int64Scanner, for PostgreSQL.
func (t *timestamp) ScanInt64(micros pgtype.Int8) error {
	*t = timestamp(Time(micros.Int64))
	return nil
}
