// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	wire "github.com/miekg/dns"
)

// maxUDPSize is the largest answer requested over UDP, in octets. Nearly all networks transmit that
// size without fragmentation. Larger answers come over TCP.
const maxUDPSize = 1232

var errMalformed = errors.New("malformed DNS message")

// exchange queries one server once: over UDP, and over TCP if the answer was truncated. If the
// server does not support EDNS (RFC 6891 §7), it repeats the query without. It calls heard when it
// needs another query for that.
func exchange(ctx context.Context, addr string, q question, heard func()) (*wire.Msg, error) {
	network, edns := "udp", true
	for {
		m, err := roundTrip(ctx, network, addr, q, edns)
		if err != nil {
			return nil, fmt.Errorf("asking %s over %s: %w", addr, network, err)
		}
		if again := m.Truncated || m.Rcode == wire.RcodeFormatError || m.Rcode == wire.RcodeNotImplemented; again && edns && network == "udp" {
			heard()
		}
		switch {
		case edns && (m.Rcode == wire.RcodeFormatError || m.Rcode == wire.RcodeNotImplemented):
			edns = false
		case m.Truncated && network == "udp":
			network = "tcp"
		case m.Truncated:
			return nil, fmt.Errorf("asking %s over tcp: the answer is truncated", addr)
		default:
			return m, nil
		}
	}
}

// roundTrip sends a query from its own socket: a forger has to guess its random port besides the
// id.
func roundTrip(ctx context.Context, network, addr string, q question, edns bool) (*wire.Msg, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()

	m := new(wire.Msg).SetQuestion(q.name, q.qtype)
	m.AuthenticatedData = true // RFC 6840 §5.7: we understand the AD bit in the answer
	if edns {
		m.SetEdns0(maxUDPSize, true)
	}
	reply, err := sendAndReceive(conn, network, m, q)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return reply, err
}

func sendAndReceive(conn net.Conn, network string, m *wire.Msg, q question) (*wire.Msg, error) {
	packed, err := m.Pack()
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
	}
	if _, err := conn.Write(packed); err != nil {
		return nil, err
	}
	if network == "tcp" {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil, err
		}
		raw := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, raw); err != nil {
			return nil, err
		}
		reply, ours, err := unpack(raw, m.Id, q)
		if err == nil && !ours {
			err = errMalformed
		}
		return reply, err
	}
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		// A message that does not answer our query may be forged: the real answer may still come.
		if reply, ours, err := unpack(buf[:n], m.Id, q); ours {
			return reply, err
		}
	}
}

// unpack parses a message, and reports whether it answers the query.
func unpack(raw []byte, id uint16, q question) (m *wire.Msg, ours bool, err error) {
	if len(raw) < 12 || binary.BigEndian.Uint16(raw) != id {
		return nil, false, nil
	}
	m = new(wire.Msg)
	if err := m.Unpack(raw); err != nil {
		// Some servers truncate in the middle of a record.
		if m.Truncated && isReplyTo(m, id, q) {
			return m, true, nil
		}
		return nil, true, errMalformed
	}
	if !isReplyTo(m, id, q) {
		return nil, false, nil
	}
	return m, true, nil
}
