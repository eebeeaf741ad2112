// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"
)

func TestClientAndSink(t *testing.T) {
	sink, err := Listen([]string{"127.0.0.1", "127.0.1.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	}()
	message := append([]byte("Subject: x\r\n\r\n"), bytes.Repeat([]byte("a line\r\n"), 500)...)
	const sessions, each = 3, 20
	failed := make(chan error, sessions)
	for _, l := range []int{0, 1, 1} {
		go func() {
			c, err := Dial(sink.listeners[l].Addr().String())
			for i := 0; i < each && err == nil; i++ {
				err = c.Send("a@bench.test", "b@bench.test", message)
			}
			if err == nil {
				err = c.Close()
			}
			failed <- err
		}()
	}
	if err := sink.WaitMessages(context.Background(), sessions*each); err != nil {
		t.Fatal(err)
	}
	for range sessions {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	want := Counts{sessions * each, sessions, int64(sessions * each * len(message))}
	if got := sink.Counts(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestUntilEnds(t *testing.T) {
	sink, err := Listen([]string{"127.0.0.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := sink.WaitMessages(ctx, 1); err == nil {
		t.Error("no message came, yet Until returned")
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
}

func TestSinkTakesTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := Listen([]string{"127.0.0.1"}, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(sink.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartTLS(&tls.Config{InsecureSkipVerify: true}); err != nil { //nolint:gosec // the sink is ours
		t.Fatal(err)
	}
	if err := c.Send("a@bench.test", "b@bench.test", []byte("Subject: x\r\n\r\nx\r\n")); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := sink.Counts().Messages; got != 1 {
		t.Errorf("%d messages", got)
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
}
