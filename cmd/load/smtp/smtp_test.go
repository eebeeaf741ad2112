// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bytes"
	"context"
	"testing"
)

func TestClientAndSink(t *testing.T) {
	sink, err := Listen([]string{"127.0.0.1", "127.0.1.1"})
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
	if err := sink.Until(context.Background(), sessions*each); err != nil {
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
	sink, err := Listen([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := sink.Until(ctx, 1); err == nil {
		t.Error("no message came, yet Until returned")
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
}
