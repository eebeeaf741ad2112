// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/web"
)

func quiet() *API {
	return &API{Services: web.Services{Log: slog.New(slog.DiscardHandler)}, memory: newMemoryBudget()}
}

// A panic results in an error response, or cuts a response that has started; the server keeps
// running.
func TestPanic(t *testing.T) {
	serve := func(h http.HandlerFunc) (w *httptest.ResponseRecorder, aborted bool) {
		a, w := quiet(), httptest.NewRecorder()
		defer func() { aborted = recover() == http.ErrAbortHandler }() //nolint:errorlint // a sentinel value
		web.WithRequestID(a.withRecovery(h)).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w, false
	}
	w, aborted := serve(func(http.ResponseWriter, *http.Request) { panic("secret") })
	if aborted || w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"internal_error"`) || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%v %d %s", aborted, w.Code, w.Body)
	}
	if _, aborted := serve(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"half":`)
		panic("secret")
	}); !aborted {
		t.Error("half an answer was ended as a whole one")
	}
	if _, aborted := serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }); !aborted {
		t.Error("an abort was answered")
	}
}

// Each kind of fault has its status; other errors reveal no details.
func TestProblemStatuses(t *testing.T) {
	a := quiet()
	for kind, want := range map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 422, fault.Denied: 403, fault.Unauthenticated: 401, fault.NotFound: 404, fault.Conflict: 409,
		fault.TooLarge: 413, fault.RateLimited: 429, fault.OverQuota: 507, fault.Unavailable: 503,
	} {
		w := httptest.NewRecorder()
		err := fmt.Errorf("doing x: %w", &fault.Error{Kind: kind, Code: "x", Message: "X.", RetryAfter: 1500e6, Cause: errors.New("secret")})
		a.writeProblem(w, httptest.NewRequest("GET", "/", nil), err)
		if w.Code != want || w.Header().Get("Retry-After") != "2" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%d: %d %v %s", kind, w.Code, w.Header(), w.Body)
		}
	}
	if p := a.toProblem(t.Context(), errors.New("secret")); p.Status != 500 || p.Code != "internal_error" || strings.Contains(p.Detail, "secret") {
		t.Errorf("got %+v", p)
	}
}

// The size of an error response is limited for any request.
func TestFaultsAreBounded(t *testing.T) {
	var bad fault.FieldErrors
	for i := range 10_000 {
		bad.Add(fmt.Sprintf("to[%d]", i), "x", "X.")
	}
	if p := quiet().toProblem(t.Context(), bad.Err()); len(p.Errors) != maxFaults {
		t.Errorf("%d faults are told", len(p.Errors))
	}
	if got := cleanName(strings.Repeat("ä", 500) + "\n"); len(got) > 70 {
		t.Errorf("a name is told with %d bytes", len(got))
	}
}

// FuzzSend checks that no body makes the reader panic, exceed its memory limit, or respond with
// anything but a fault of the request.
func FuzzSend(f *testing.F) {
	for _, seed := range []string{
		`{"from_email":"a@b.example","to":["c@d.example"],"subject":"x","text":"y","metadata":{"a":[1,{"b":null}]},"headers":{"X-A":"b"}}`,
		`{"attachments":[{"filename":"x","content":"aGk="},{"content":null},{"content":0}],"cc":null}`,
		`{"attachments":[{"\u0063ontent":"aGk\u003d","content_type":5}]}`,
		`[[[{"attachments":[{"content":"`, `{"a":1e999,"b":"\ud800"}`, `{"":{"":""}}`, "null", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &sendOperation{api: quiet(), bodyLimits: sendBodyLimits()}
		defer p.close()
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		var in sendRequest
		bad, err := p.readBody(httptest.NewRecorder(), r, &in)
		if err != nil {
			if p := quiet().toProblem(t.Context(), err); p.Status < 400 || p.Status >= 500 {
				t.Fatalf("%d: %v", p.Status, err)
			}
			return
		}
		for _, a := range in.outboundRequest(&p.spool, bad).Attachments {
			if a.Open == nil {
				if len(bad) > 0 {
					continue
				}
				t.Fatal("an attachment without content passed")
			}
			content, err := a.Open()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, content); err != nil || n != a.Size {
				t.Fatalf("%d of %d bytes, %v", n, a.Size, err)
			}
		}
	})
}

// FuzzBatch is FuzzSend for a batch. Every type error is reported with its message, or for the
// whole batch.
func FuzzBatch(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"to":["c@d.example"],"subject":"x","attachments":[{"filename":"x","content":"aGk="},{"content":null}]},{"attachments":[{"content":"@"}]}]}`,
		`{"messages":[{"template_id":"x","variables":{"a":[1]},"text":""},{"variables":5,"html":"x"},{"template_id":7}]}`,
		`{"messages":[5,null,{"x":1,"cc":[1]}],"partial":1,"messages[0]":1}`, `{"partial":true,"messages":{"a":[{"attachments":[{"content":"aGk="}]}]}}`, `{"messages":[`, "",
	} {
		f.Add([]byte(seed))
	}
	a := quiet()
	a.Templates = &template.Templates{DB: dbtest.Open(f, dbtest.SQLite(f))}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &sendOperation{api: a, bodyLimits: batchBodyLimits()}
		defer p.close()
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		var in batchRequest
		bad, err := p.readBody(httptest.NewRecorder(), r, &in)
		if err != nil {
			if p := quiet().toProblem(t.Context(), err); p.Status < 400 || p.Status >= 500 {
				t.Fatalf("%d: %v", p.Status, err)
			}
			return
		}
		o, err := a.buildBatch(t.Context(), account.Principal{}, &in, decodedAttachments{&p.spool, bad, p.reservation.reserve})
		if err != nil {
			t.Fatal(err)
		}
		told := len(o.RequestFaults)
		for _, s := range o.sends {
			told += len(s.RequestFaults)
			for _, a := range s.Attachments {
				if a.Open == nil && len(s.RequestFaults)+len(o.RequestFaults) == 0 {
					t.Fatal("an attachment without content passed")
				}
			}
		}
		if told < len(bad) {
			t.Fatalf("%d of %d faults are told", told, len(bad))
		}
		if len(o.sends) != len(in.Messages) && len(o.RequestFaults) == 0 {
			t.Fatalf("%d of %d messages, and no fault", len(o.sends), len(in.Messages))
		}
	})
}

// FuzzDecode checks that decode accepts only JSON, rejects with a client error, and never panics.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"name":"x","scopes":["*"],"expires_at":"2026-01-02T03:04:05Z"}`, `{"name":1}`, `[]`, `{"name":{"a":[]}}`, `{"allowed_ips":[null,1]}`,
		`{"domain_id":"x","local_part":"y","quota_mb":1e3}`, `{"from_email":"a","headers":{"a":1},"metadata":{},"attachments":[[{}]]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, into := range []any{&createKeyRequest{}, &createMailboxRequest{}, &sendRequest{}} {
			err := decodeJSON(text, reflect.ValueOf(into).Elem())
			if err == nil && !json.Valid(text) {
				t.Fatalf("%q passed", text)
			}
			if err == nil {
				continue
			}
			if p := quiet().toProblem(t.Context(), err); p.Status < 400 || p.Status >= 500 || p.Status == 422 && len(p.Errors) == 0 {
				t.Fatalf("%+v: %v", p, err)
			}
		}
	})
}

func BenchmarkReadSend4KiB(b *testing.B) {
	body := `{"from_email":"a@b.example","to":["c@d.example"],"subject":"Hello","text":"` + strings.Repeat("0123456789 abcde", 256) + `","metadata":{"order":1}}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var in sendRequest
		p := &sendOperation{api: quiet(), bodyLimits: sendBodyLimits()}
		if bad, err := p.readBody(httptest.NewRecorder(), r, &in); err != nil || len(bad) > 0 {
			b.Fatal(bad, err)
		}
	}
}

// The discarded rest of a rejected body counts against no memory budget. Otherwise concurrent large
// requests would cause each other's rejection.
func TestRefusedBodyIsNotKept(t *testing.T) {
	a := quiet()
	kept := []int{}
	left := readerFunc(func([]byte) (int, error) {
		kept = append(kept, a.memory.total)
		return 0, io.EOF
	})
	r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(`{"text":"`+strings.Repeat("x", 1<<20)), strings.NewReader("\" no JSON"), left))
	r.Header.Set("Content-Type", "application/json")
	post := &sendOperation{api: a, bodyLimits: sendBodyLimits()}
	_, err := post.run(httptest.NewRecorder(), r, operation{}, new(struct{}), nil, nil)
	if post.close(); !fault.Is(err, fault.Invalid) || !reflect.DeepEqual(kept, []int{0}) || a.memory.total != 0 || len(a.memory.byAccount) != 0 {
		t.Errorf("%v; kept %d while the rest came, %d afterwards", err, kept, a.memory.total)
	}
}

// Ordinary bodies of an account count against its memory budget. Each is released with its
// response, or before its rest is discarded.
func TestOrdinaryBodyIsKept(t *testing.T) {
	a := quiet()
	type input struct {
		Body struct {
			Text string `json:"text"`
		}
	}
	answer := operationHandler(a, operation{}, func(context.Context, account.Principal, *input) (emptyResponse, error) { return emptyResponse{}, nil })
	post := func(who db.ID) (most int, err error) {
		half := readerFunc(func([]byte) (int, error) {
			most = max(most, a.memory.byAccount[who])
			return 0, io.EOF
		})
		text := strings.NewReader(`{"text":"` + strings.Repeat("x", 1000<<10))
		r := httptest.NewRequest("POST", "/", io.MultiReader(text, half, strings.NewReader(`"}`)))
		r.Header.Set("Content-Type", "application/json")
		err = answer(httptest.NewRecorder(), r, account.Principal{Account: who})
		return most, err
	}
	if most, err := post(1); err != nil || most < 900<<10 || a.memory.total != 0 {
		t.Errorf("%v; kept %d, afterwards %d", err, most, a.memory.total)
	}
	full := memoryReservation{budget: a.memory, account: 1}
	for full.reserve(reserveStepBytes) == nil {
	}
	if most, err := post(1); !fault.Is(err, fault.RateLimited) || most != full.reserved || a.memory.total != full.reserved {
		t.Errorf("%v; kept %d with the %d of others", err, most, full.reserved)
	}
	if _, err := post(2); err != nil {
		t.Errorf("another account: %v", err)
	}
}

// Unread responses count against the account's memory budget, too, until the client has read them.
// An operation that changes something reserves memory first, so that it can report the result.
func TestAnswersAreKept(t *testing.T) {
	a := quiet()
	changed := 0
	answers := func(o operation) handler {
		return operationHandler(a, o, func(context.Context, account.Principal, *struct{}) (string, error) {
			if o.maxResponseBytes > 0 {
				changed++
			}
			return strings.Repeat("x", 1<<20), nil
		})
	}
	show, try, change, small := answers(operation{method: "GET"}), answers(operation{method: "POST", readOnly: true}),
		answers(operation{method: "POST", maxResponseBytes: 1 << 20}), answers(operation{method: "POST"})
	ask := func(who db.ID, answer handler, w http.ResponseWriter) error {
		return answer(w, httptest.NewRequest("GET", "/", nil), account.Principal{Account: who})
	}
	begun, read := make(chan struct{}), make(chan struct{})
	defer close(read)
	var refused error
	n := 0
	for ; refused == nil && n < 200; n++ {
		of := []handler{show, try, change}[n%3]
		go func() {
			err := ask(1, of, unread{httptest.NewRecorder(), begun, read})
			if err != nil {
				refused = err
				begun <- struct{}{}
			}
		}()
		<-begun
	}
	if !fault.Is(refused, fault.RateLimited) || a.memory.total > maxMemoryPerAccount {
		t.Fatalf("after %d answers: %v; kept %d", n, refused, a.memory.total)
	}
	before := changed
	for what, of := range map[string]handler{"show": show, "try": try, "change": change} {
		if err := ask(1, of, httptest.NewRecorder()); !fault.Is(err, fault.RateLimited) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if changed != before {
		t.Error("changed, and not told")
	}
	if err := ask(1, small, httptest.NewRecorder()); err != nil {
		t.Errorf("what has no large answer: %v", err)
	}
	if err := ask(2, show, httptest.NewRecorder()); err != nil {
		t.Errorf("another account: %v", err)
	}
	read <- struct{}{}
	for err := errors.New(""); err != nil; { // the slot is released soon after
		err = ask(1, show, httptest.NewRecorder())
	}
}

// The number of concurrent reads of an account is limited.
func TestReadsInTurns(t *testing.T) {
	a := quiet()
	begun, end := make(chan struct{}), make(chan struct{})
	show := operationHandler(a, operation{method: "GET"}, func(context.Context, account.Principal, *struct{}) (string, error) {
		begun <- struct{}{}
		<-end
		return "", nil
	})
	var all sync.WaitGroup
	ask := func(ctx context.Context, who db.ID) error {
		return show(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil), account.Principal{Account: who})
	}
	for range maxReadsPerAccount {
		all.Go(func() { _ = ask(t.Context(), 1) })
		<-begun
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := ask(left, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
	all.Go(func() { _ = ask(t.Context(), 2) })
	<-begun // another account's read succeeds
	close(end)
	all.Wait()
}

// unread is a response writer of a client that does not read for a while.
type unread struct {
	http.ResponseWriter
	begun, read chan struct{}
}

func (u unread) Write(p []byte) (int, error) {
	u.begun <- struct{}{}
	<-u.read
	return len(p), nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// However much memory some accounts use, another account still gets part of the rest.
func TestLargeBodiesOfMany(t *testing.T) {
	b := newMemoryBudget()
	for account := db.ID(1); account <= 3; account++ {
		for b.reserve(account, reserveStepBytes) == nil {
		}
	}
	if err := b.reserve(4, 8<<20); err != nil || b.total > maxMemory || b.byAccount[1] != maxMemoryPerAccount {
		t.Errorf("%v; kept %d, %v", err, b.total, b.byAccount)
	}
}
