// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// sendBody is a send with attachments of the given sizes, generated while it is read: the test itself
// must not use much memory.
func sendBody(to string, sizes ...int) io.Reader {
	parts := []io.Reader{strings.NewReader(fmt.Sprintf(`{"from_email":"alice@demo.test","to":["%s"],"subject":"Big","text":"x","attachments":[`, to))}
	for i, size := range sizes {
		comma := ""
		if i > 0 {
			comma = ","
		}
		parts = append(parts, strings.NewReader(fmt.Sprintf(`%s{"filename":"%d.bin","content":"`, comma, i)), encoded(size), strings.NewReader(`"}`))
	}
	return io.MultiReader(append(parts, strings.NewReader(`]}`))...)
}

// encoded returns that many zeros in base64.
func encoded(size int) io.Reader {
	rest := base64.StdEncoding.EncodeToString(make([]byte, size%3))
	return io.MultiReader(io.LimitReader(repeat('A'), int64(size/3*4)), strings.NewReader(rest))
}

type repeat byte

func (r repeat) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{byte(r)}, len(p)))
	return len(p), nil
}

var asJSON = map[string]string{"Content-Type": "application/json"}

func TestSendSizes(t *testing.T) {
	s := servertest.Start(t)
	const all = outbound.MaxAttachmentBytes
	post := func(body io.Reader) servertest.Response {
		return call(t, s, "POST", "/api/v1/outbound/send", asJSON, body)
	}
	const to = "delivered@simulator.test"
	status(t, "exactly 25 MB", post(sendBody(to, all)), 202)
	status(t, "exactly 25 MB in ten", post(sendBody(to, all-9, 1, 1, 1, 1, 1, 1, 1, 1, 1)), 202)
	refused(t, "one more", post(sendBody(to, all+1)), 422, "validation_failed", "attachments attachments_too_large")
	refused(t, "one more in two", post(sendBody(to, all, 1)), 422, "validation_failed", "attachments attachments_too_large")
	refused(t, "40 MiB of attachments", post(sendBody(to, 31<<20)), 413, "body_too_large")
	refused(t, "40 MiB of text", post(io.MultiReader(strings.NewReader(`{"text":"`), io.LimitReader(repeat('x'), 41<<20))), 413, "body_too_large")
	refused(t, "40 MiB of spaces", post(io.LimitReader(repeat(' '), 41<<20)), 413, "body_too_large")
	refused(t, "many empty attachments", post(io.MultiReader(strings.NewReader(`{"attachments":[{}`), strings.NewReader(strings.Repeat(`,{"content":""}`, 2_000_000)))), 413, "too_many_values")
	refused(t, "a long text", post(io.MultiReader(strings.NewReader(`{"from_email":"alice@demo.test","to":["bob@demo.test"],"subject":"x","text":"`),
		io.LimitReader(repeat('x'), 10<<20+1), strings.NewReader(`"}`))), 422, "validation_failed", "text too_long")
}

// Sends with 25 MB of attachments each, and batches of three such sends, are not held in memory.
func TestSendMemory(t *testing.T) {
	const all = outbound.MaxAttachmentBytes
	for what, c := range map[string]struct {
		path string
		n    int
		body func() io.Reader
	}{
		"4 sends": {"send", 4, func() io.Reader { return sendBody("delivered@simulator.test", all) }},
		"2 batches": {"batch", 2, func() io.Reader {
			const to, comma = "delivered@simulator.test", ","
			return io.MultiReader(strings.NewReader(`{"messages":[`), sendBody(to, all), strings.NewReader(comma), sendBody(to, all), strings.NewReader(comma),
				sendBody(to, all-(2<<20)), strings.NewReader(`]}`))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s := servertest.Start(t)
			status(t, "warming up", call(t, s, "POST", "/api/v1/outbound/send", asJSON, sendBody("delivered@simulator.test", 1<<20)), 202)
			runtime.GC()
			sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			metrics.Read(sample)
			start, peak := sample[0].Value.Uint64(), uint64(0)
			var mu sync.Mutex
			watch := func() {
				mu.Lock()
				defer mu.Unlock()
				metrics.Read(sample)
				peak = max(peak, sample[0].Value.Uint64())
			}
			var sends sync.WaitGroup
			for range c.n {
				sends.Go(func() {
					if a := call(t, s, "POST", "/api/v1/outbound/"+c.path, asJSON, watched{c.body(), watch}); a.Status != 202 {
						t.Errorf("%d %s", a.Status, a.Body)
					}
					watch()
				})
			}
			sends.Wait()
			grown := int64(peak) - int64(start)
			t.Logf("the heap grew by %d MB", grown>>20)
			if grown > 60<<20 {
				t.Error("that is too much")
			}
		})
	}
}

// The slow requests of one account use limited memory together. After they have ended, the server
// accepts others.
func TestLargeBodiesAtOnce(t *testing.T) {
	s := servertest.Start(t)
	const n, size = 12, 22 << 20
	text := func(end io.Reader) io.Reader {
		return io.MultiReader(strings.NewReader(`{"text":"`), io.LimitReader(repeat('x'), size), end, strings.NewReader(`"}`))
	}
	var all, sent sync.WaitGroup
	sent.Add(n)
	var mu sync.Mutex
	answers := map[string]int{}
	for range n {
		all.Go(func() {
			a := call(t, s, "POST", "/api/v1/outbound/send", asJSON, text(&meeting{wait: func() { sent.Done(); sent.Wait() }}))
			mu.Lock()
			defer mu.Unlock()
			var p struct{ Code string }
			a.Decode(t, &p)
			answers[fmt.Sprint(a.Status, " ", p.Code)]++
		})
	}
	all.Wait()
	if refused := answers["429 too_many_large_requests"]; refused == 0 || answers["422 validation_failed"] != n-refused {
		t.Errorf("%v", answers)
	}
	refused(t, "afterwards", call(t, s, "POST", "/api/v1/outbound/send", asJSON, text(strings.NewReader(""))), 422, "validation_failed",
		"from_email invalid_address", "to required", "subject required", "text too_long")
}

// The expansion of a template counts against the memory budget, too.
func TestLargeTemplatesAtOnce(t *testing.T) {
	s := servertest.Start(t)
	var made struct{ ID string }
	long := s.API("POST", "/templates", object{
		"name": "Long", "subject": "Long", "html": "{{#each rows}}<p>" + strings.Repeat("word ", 80_000) + "</p>{{/each}}",
	})
	status(t, "a template", long, 201)
	long.Decode(t, &made)
	send := func() servertest.Response {
		return s.API("POST", "/outbound/send-template", object{
			"from_email": "alice@demo.test", "to": []string{"delivered@simulator.test"}, "template_id": made.ID, "variables": object{"rows": make([]int, 24)},
		})
	}
	const n, size = 4, 22 << 20
	var begun, all sync.WaitGroup
	begun.Add(n)
	end := make(chan struct{})
	for range n {
		all.Go(func() {
			_ = call(t, s, "POST", "/api/v1/outbound/send", asJSON, io.MultiReader(strings.NewReader(`{"text":"`), io.LimitReader(repeat('x'), size),
				&meeting{wait: func() { begun.Done(); <-end }}, strings.NewReader(`"}`)))
		})
	}
	begun.Wait()
	refused(t, "while others have their texts in memory", send(), 429, "too_many_large_requests")
	close(end)
	all.Wait()
	status(t, "afterwards", send(), 202)
}

// meeting is an end of a body at which readers wait for each other.
type meeting struct{ wait func() }

func (m *meeting) Read([]byte) (int, error) {
	m.wait()
	return 0, io.EOF
}

// watched samples the heap whenever it is read.
type watched struct {
	io.Reader
	look func()
}

func (w watched) Read(p []byte) (int, error) {
	w.look()
	return w.Reader.Read(p)
}

// A body that ends early is the client's error and stores nothing.
func TestSendCutOff(t *testing.T) {
	s := servertest.Start(t)
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, io.LimitReader(sendBody("bob@demo.test", 1<<20), 500_000))
		_ = w.CloseWithError(errors.New("the client gave up"))
	}()
	gaveUp(t, s, r)
	if got := ids(t, s.API("GET", "/outbound/messages", nil)); len(got) != 0 {
		t.Errorf("stored: %v", got)
	}
}
