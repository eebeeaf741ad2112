// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
)

// cheapSink replies as fast as possible, so that the benchmark measures the client.
func cheapSink(b *testing.B, cfg *tls.Config) net.Addr {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go cheapSession(nc, cfg)
		}
	}()
	return l.Addr()
}

func cheapSession(nc net.Conn, cfg *tls.Config) {
	defer func() { _ = nc.Close() }()
	br, bw := bufio.NewReaderSize(nc, 16<<10), bufio.NewWriter(nc)
	say := func(s string) { _, _ = bw.WriteString(s + "\r\n") }
	say("220 sink")
	data := false
	for {
		if br.Buffered() == 0 && bw.Flush() != nil {
			return
		}
		line, err := br.ReadSlice('\n')
		switch {
		case err != nil:
			return
		case data:
			if string(line) == ".\r\n" {
				data = false
				say("250 2.0.0 queued")
			}
		case bytes.HasPrefix(line, []byte("EHLO")):
			say("250-sink")
			if cfg != nil {
				say("250-STARTTLS")
			}
			say("250 PIPELINING")
		case bytes.HasPrefix(line, []byte("STARTTLS")):
			say("220 go")
			_ = bw.Flush()
			t := tls.Server(nc, cfg)
			cfg = nil
			br.Reset(t)
			bw.Reset(t)
		case bytes.HasPrefix(line, []byte("DATA")):
			say("354 go")
			data = true
		case bytes.HasPrefix(line, []byte("QUIT")):
			say("221 bye")
			_ = bw.Flush()
			return
		default:
			say("250 2.1.0 ok")
		}
	}
}

func benchmarkSend(b *testing.B, cfg *tls.Config) {
	addr := cheapSink(b, cfg).(*net.TCPAddr).AddrPort()
	body := "Subject: benchmark\r\n\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 52)
	p := NewPool(PoolLimits{})
	o := options(addr)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	b.RunParallel(func(pb *testing.PB) {
		err := p.SendAll(context.Background(), o, func() *Message {
			if !pb.Next() {
				return nil
			}
			m := message("b@mx.test")
			m.Body = strings.NewReader(body)
			return m
		}, func(_ *Message, r *Result) {
			if r.Outcomes[0].Class != Delivered {
				b.Errorf("%+v", r.Outcomes[0])
			}
		})
		if err != nil {
			b.Error(err)
		}
	})
	if err := p.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

// BenchmarkSend sends 4 KiB messages, one recipient each, to a sink.
func BenchmarkSend(b *testing.B) { benchmarkSend(b, nil) }

// BenchmarkSendTLS is the same over STARTTLS.
func BenchmarkSendTLS(b *testing.B) {
	cert, _ := certificate(b)
	benchmarkSend(b, &tls.Config{Certificates: []tls.Certificate{cert}})
}
