// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
)

var blobOf = db.SQL(`SELECT blob FROM outbound_message WHERE id = $1`)

// sent returns a message as sent, without its signatures.
func sent(t *testing.T, s *servertest.Server, id db.ID) string {
	t.Helper()
	var blob db.ID
	if err := s.DB.One(t.Context(), blobOf.With(id), &blob); err != nil {
		t.Fatal(err)
	}
	b, err := s.Blobs.Load(t.Context(), blob)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(r.All())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// program is an API key that submits by SMTP, together with the mailbox alice.
type program struct {
	*servertest.Server
	t     *testing.T
	key   account.Principal
	alice mailbox.Mailbox
}

func programOf(t *testing.T, s *servertest.Server) *program {
	t.Helper()
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	alice, err := s.Mailboxes.ByID(t.Context(), s.Dev.Mailboxes[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return &program{s, t, account.Principal{Account: acc.ID, Key: 1, Scopes: []string{account.ScopeAll}}, alice}
}

func (p *program) submission(from string, to ...string) outbound.Submission {
	sub := outbound.Submission{Received: message.ReceivedField{By: "localhost", With: "ESMTPSA"}, Ret: "FULL", EnvID: "e"}
	if from != "" {
		a := addr(p.t, from)
		sub.From = &a
	}
	for _, one := range to {
		sub.To = append(sub.To, outbound.SubmissionRecipient{Address: addr(p.t, one)})
	}
	return sub
}

func (p *program) byKey(from, text string, to ...string) (db.ID, error) {
	return p.Outbox.SubmitByKey(p.t.Context(), p.key, p.submission(from, to...), strings.NewReader(text))
}

func (p *program) byBox(text string, to ...string) (db.ID, error) {
	return p.Outbox.Submit(p.t.Context(), p.alice, p.submission("alice@demo.test", to...), strings.NewReader(text))
}

func (p *program) get(id db.ID) outbound.Message {
	p.t.Helper()
	m, err := p.Outbox.Get(p.t.Context(), p.key.Account, id)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// A message that a program submits by SMTP is API mail.
func TestSubmitByKey(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		if _, err := s.Suppressions.Put(t.Context(), p.key.Account, []address.Address{addr(t, "no@far.example")}, suppression.ReasonManual); err != nil {
			t.Fatal(err)
		}
		id, err := p.byKey("any.one@demo.test", "From: Shop <shop@demo.test>\r\nTo: a@far.example\r\nCc: B <b@far.example>, no@far.example\r\nBcc: c@far.example\r\n"+
			"Subject: hi\r\nMessage-ID: <own@shop.example>\r\nX-Mailstead-Metadata: {\"order\":7}\r\nX-Mailstead-Tags: receipt, shop\r\n\r\nHello\r\n",
			"a@far.example", "b@far.example", "c@far.example", "no@far.example", "A@FAR.example")
		if err != nil {
			t.Fatal(err)
		}
		m := p.get(id)
		var kinds []string
		for _, d := range m.Deliveries {
			kinds = append(kinds, d.Kind+" "+d.Recipient)
			if (d.State == queue.Suppressed) != (d.Recipient == "no@far.example") {
				t.Errorf("%s is %s", d.Recipient, d.State)
			}
			if life := d.ExpiresAt.Sub(m.CreatedAt); life != outbound.ExpiryAPI {
				t.Errorf("expires after %v", life)
			}
		}
		if fmt.Sprint(kinds) != "[to a@far.example cc b@far.example bcc c@far.example cc no@far.example]" {
			t.Errorf("deliveries %v", kinds)
		}
		if m.Mailbox != 0 || m.From != "shop@demo.test" || m.MessageID != "<own@shop.example>" || m.ThreadID == "" || string(m.Metadata) != `{"order":7}` || fmt.Sprint(m.Tags) != "[receipt shop]" {
			t.Errorf("stored %+v", m)
		}
		mail, err := s.Outbox.Prepare(t.Context(), id)
		if err != nil || mail.ReturnDomain != "demo.test" || mail.Sender != "" || mail.Ret != "HDRS" || mail.EnvID != "" || !mail.API {
			t.Errorf("goes as %+v, %v", mail, err)
		}
		text := sent(t, s, id)
		if strings.Contains(text, "X-Mailstead") || strings.Contains(text, "\nBcc") || !strings.Contains(text, "\r\nFeedback-ID: smtp:demo.test:") {
			t.Errorf("sent\n%s", text)
		}
	})
}

// A key sends as any local part of one domain that it may use, and as no other.
func TestSubmitByKeyAuthors(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		for what, c := range map[string]struct {
			envelope, header string
			kind             fault.Kind
		}{
			"any local part":             {"x@demo.test", "From: y@demo.test", 0},
			"the null sender":            {"", "From: y@demo.test", 0},
			"several of the domain":      {"x@demo.test", "From: y@demo.test, z@demo.test\r\nSender: x@DEMO.test", 0},
			"a foreign envelope":         {"x@far.example", "From: y@demo.test", fault.Denied},
			"a sub-domain as envelope":   {"x@a.demo.test", "From: y@demo.test", fault.Denied},
			"a foreign author":           {"x@demo.test", "From: y@far.example", fault.Denied},
			"a sub-domain":               {"x@demo.test", "From: y@a.demo.test", fault.Denied},
			"a foreign author beside":    {"x@demo.test", "From: y@demo.test, y@far.example", fault.Denied},
			"a foreign author as sender": {"x@demo.test", "From: y@demo.test\r\nSender: y@far.example", fault.Denied},
			"null, and foreign":          {"", "From: y@far.example", fault.Denied},
			"no author":                  {"x@demo.test", "Subject: x", fault.Invalid},
			"the class of the service":   {"x@demo.test", "From: y@demo.test\r\nFeedback-ID: service:demo.test:0:mailstead", fault.Invalid},
			"two authors in brackets":    {"x@demo.test", "From: <y@demo.test> <y@far.example>", fault.Invalid},
		} {
			_, err := p.byKey(c.envelope, c.header+"\r\n\r\nHi\r\n", "bob@far.example")
			if c.kind == 0 && err != nil || c.kind != 0 && !fault.Is(err, c.kind) {
				t.Errorf("%s: %v", what, err)
			}
		}
		p.key.Domain = "other.test"
		if _, err := p.byKey("", "From: y@demo.test\r\n\r\n", "bob@far.example"); !fault.Is(err, fault.Denied) {
			t.Errorf("a key of another domain: %v", err)
		}
		if err := s.Outbox.CheckKeySender(t.Context(), p.key, new(addr(t, "x@demo.test"))); !fault.Is(err, fault.Denied) {
			t.Errorf("a key of another domain: %v", err)
		}
	})
}

// Header fields schedule, thread and describe a submission, and none of them is sent.
func TestSubmitWishes(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
		id, err := p.byKey("alice@demo.test", "From: alice@demo.test\r\nDate: Mon, 1 Jan 2024 00:00:00 +0000\r\nX-Mailstead-Schedule: "+at.Format(time.RFC3339)+
			"\r\nx-mailstead-thread :\r\n order 7\r\nX-MAILSTEAD-METADATA: =?utf-8?q?{=22a=22:1}?=\r\nX-Mail: stays\r\n\r\nHi\r\n", "bob@far.example")
		if err != nil {
			t.Fatal(err)
		}
		m := p.get(id)
		if m.Status != queue.Scheduled || !m.SendAt.Equal(at) || m.ThreadID != "order 7" || string(m.Metadata) != `{"a":1}` || m.Mailbox != 0 ||
			!m.Deliveries[0].ExpiresAt.Round(time.Minute).Equal(at.Add(outbound.ExpiryAPI).Round(time.Minute)) {
			t.Errorf("stored %+v", m)
		}
		text := sent(t, s, id)
		if strings.Contains(strings.ToLower(text), "mailstead-") || strings.Contains(text, "order 7") || !strings.Contains(text, "X-Mail: stays\r\n") ||
			strings.Count(text, "\r\nDate: ") != 1 || !strings.Contains(text, "\r\nDate: "+at.Format(message.DateFormat)+"\r\n") {
			t.Errorf("sent\n%s", text)
		}
		next, err := p.byKey("alice@demo.test", "From: alice@demo.test\r\nX-Mailstead-Thread: order 7\r\n\r\nMore\r\n", "bob@far.example")
		if err != nil {
			t.Fatal(err)
		}
		if text := sent(t, s, next); !strings.Contains(text, "\r\nIn-Reply-To: "+m.MessageID+"\r\nReferences: "+m.MessageID+"\r\n") {
			t.Errorf("sent\n%s", text)
		}
		if text := sent(t, s, must(t)(p.byKey("alice@demo.test", "From: alice@demo.test\r\nIn-Reply-To: <own@x>\r\nX-Mailstead-Thread: order 7\r\n\r\nMore\r\n", "bob@far.example"))); strings.Contains(text, m.MessageID) {
			t.Errorf("sent\n%s", text)
		}
		for _, bad := range []string{"X-Mailstead-Schedule: soon", "X-Mailstead-Metadata: 7", "X-Mailstead-Thread: a\r\nX-Mailstead-Thread: b", "X-Mailstead-Unheard: of"} {
			_, err := p.byKey("alice@demo.test", "From: alice@demo.test\r\n"+bad+"\r\n\r\nHi\r\n", "bob@far.example")
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "X-Mailstead-") {
				t.Errorf("%s: %v", bad, err)
			}
		}
		if list := messages(t, s, p.key.Account); len(list) != 3 {
			t.Errorf("%d are stored", len(list))
		}
	})
}

// A mailbox's password gives no access to templates, threads, metadata or schedules of the account:
// the option fields are removed and have no effect.
func TestSubmitWishesOfAMailbox(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		if _, err := s.Templates.Create(t.Context(), p.key.Account, template.CreateParams{Name: "Secret", Alias: "secret", Content: template.Content{
			Subject: "inside", Text: "what the account alone knows",
		}}); err != nil {
			t.Fatal(err)
		}
		first := must(t)(p.byKey("shop@demo.test", "From: shop@demo.test\r\nX-Mailstead-Thread: deal 7\r\n\r\nHi\r\n", "bob@far.example"))
		for _, fields := range []string{
			"X-Mailstead-Template: secret\r\n", "X-Mailstead-Template: unknown\r\n", "x-mailstead-THREAD: deal 7\r\n",
			"X-Mailstead-Metadata: {\"order\":7}\r\n", "X-Mailstead-Metadata: broken\r\n", "X-Mailstead-Variables: {}\r\n",
			"X-Mailstead-Schedule: " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "\r\n",
			"X-Mailstead-Idempotency-Key: k\r\n", "X-Mailstead-Idempotency-Key: k\r\n", "X-Mailstead-Unheard: of\r\n", "X-Mailstead-Unsubscribe:\r\n",
			"X-Mailstead-Tags: receipt\r\n",
		} {
			id := must(t)(p.byBox("From: alice@demo.test\r\nSubject: own\r\n"+fields+"\r\nown text\r\n", "bob@far.example"))
			m, text := p.get(id), sent(t, s, id)
			if m.Template != 0 || m.ThreadID == "deal 7" || string(m.Metadata) != "{}" || m.Tags != nil || m.Status == queue.Scheduled || m.Subject != "own" {
				t.Errorf("%q: stored %+v", fields, m)
			}
			if strings.Contains(strings.ToLower(text), "x-mailstead-") || strings.Contains(text, "List-Unsubscribe") || strings.Contains(text, p.get(first).MessageID) || !strings.Contains(text, "own text") {
				t.Errorf("%q: sent\n%s", fields, text)
			}
		}
		if n := len(messages(t, s, p.key.Account)); n != 13 {
			t.Errorf("%d are stored, want 13", n)
		}
	})
}

// A header field makes a submission offer to unsubscribe, as the option of a send does.
func TestSubmitUnsubscribe(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		const from = "From: alice@demo.test\r\nTo: bob@far.example\r\n"
		if _, err := s.Suppressions.Put(t.Context(), p.key.Account, []address.Address{addr(t, "left@far.example")}, suppression.ReasonUnsubscribe); err != nil {
			t.Fatal(err)
		}
		for field, want := range map[string]string{
			"X-Mailstead-Unsubscribe:":                                                   `List-Unsubscribe: <http[^>]+/u/[\w-]+>,\s+<mailto:b-[a-z2-7]{32}@demo\.test\?subject=unsubscribe>`,
			"X-Mailstead-Unsubscribe: true":                                              `List-Unsubscribe: <http[^>]+/u/[\w-]+>,\s+<mailto:b-`,
			"X-Mailstead-Unsubscribe: leave@demo.test":                                   `List-Unsubscribe: <http[^>]+/u/[\w-]+>,\s+<mailto:leave@demo\.test>`,
			"X-Mailstead-Unsubscribe: <https://shop.example/?a=1>, <mailto:x@y.example>": `List-Unsubscribe: <https://shop\.example/\?a=1>,\s+<mailto:x@y\.example>`,
		} {
			id := must(t)(p.byKey("alice@demo.test", field+"\r\n"+from+"\r\nHi\r\n", "bob@far.example"))
			text := sent(t, s, id)
			if !regexp.MustCompile(`\r\n`+want).MatchString(text) || strings.Count(text, "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n") != 1 || strings.Contains(text, "X-Mailstead") {
				t.Errorf("%s: sent\n%s", field, text)
			}
			if m := p.get(must(t)(p.byKey("alice@demo.test", field+"\r\n"+from+"\r\nHi\r\n", "left@far.example"))); m.Status != queue.Suppressed {
				t.Errorf("%s: to one who left: %s", field, m.Status)
			}
		}
		if m := p.get(must(t)(p.byKey("alice@demo.test", from+"\r\nHi\r\n", "left@far.example"))); m.Status == queue.Suppressed {
			t.Error("mail without an offer is suppressed")
		}
		for what, field := range map[string]string{
			"two recipients, hosted": "X-Mailstead-Unsubscribe:", "not https": "X-Mailstead-Unsubscribe: http://shop.example/",
			"no": "X-Mailstead-Unsubscribe: false", "an offer of its own": "X-Mailstead-Unsubscribe: https://shop.example/\r\nList-Unsubscribe: <https://shop.example/>",
		} {
			_, err := p.byKey("alice@demo.test", field+"\r\n"+from+"\r\nHi\r\n", "bob@far.example", "carol@far.example")
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "X-Mailstead-Unsubscribe") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// With an idempotency key a submission takes effect once, even with many concurrent attempts.
func TestSubmitOnce(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		text := func(date, id, body string) string {
			return "From: alice@demo.test\r\nDate: " + date + "\r\nMessage-ID: " + id + "\r\nX-Mailstead-Idempotency-Key: k1\r\n\r\n" + body + "\r\n"
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		ids, later := map[db.ID]int{}, 0
		for n := range 50 {
			all.Go(func() {
				id, err := p.byKey("alice@demo.test", text("Mon, 1 Jan 2024 00:00:00 +0000", fmt.Sprintf("<%d@x>", n), "Hi"), "bob@far.example")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					ids[id]++
				case fault.Is(err, fault.RateLimited):
					later++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(ids) != 1 || len(messages(t, s, p.key.Account)) != 1 {
			t.Errorf("accepted as %v, %d were told to come later", ids, later)
		}
		id, err := p.byKey("alice@demo.test", text("Tue, 2 Jan 2024 00:00:00 +0000", "<other@x>", "Hi"), "bob@far.example")
		if err != nil || ids[id] == 0 {
			t.Errorf("again: %s, %v", id, err)
		}
		for what, err := range map[string]error{
			"another body":      second(p.byKey("alice@demo.test", text("Mon, 1 Jan 2024 00:00:00 +0000", "<0@x>", "Ho"), "bob@far.example")),
			"another recipient": second(p.byKey("alice@demo.test", text("Mon, 1 Jan 2024 00:00:00 +0000", "<0@x>", "Hi"), "eve@far.example")),
			"a key too long":    second(p.byKey("alice@demo.test", "From: alice@demo.test\r\nX-Mailstead-Idempotency-Key: "+strings.Repeat("k", 257)+"\r\n\r\n", "bob@far.example")),
		} {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "X-Mailstead-Idempotency-Key") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := len(messages(t, s, p.key.Account)); n != 1 {
			t.Errorf("%d are stored", n)
		}
		// After a rejection the same key may be used for a corrected message.
		if _, err := p.byKey("alice@demo.test", "From: bob@far.example\r\nX-Mailstead-Idempotency-Key: k2\r\n\r\nHi\r\n", "bob@far.example"); !fault.Is(err, fault.Denied) {
			t.Error(err)
		}
		if _, err := p.byKey("alice@demo.test", "From: alice@demo.test\r\nX-Mailstead-Idempotency-Key: k2\r\n\r\nHi\r\n", "bob@far.example"); err != nil {
			t.Error(err)
		}
	})
}

// A message submitted while the response of its key expires isn't accepted.
func TestSubmitOnceInTheLastMoment(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		const text = "From: alice@demo.test\r\nX-Mailstead-Idempotency-Key: k1\r\n\r\nHi\r\n"
		must(t)(p.byKey("alice@demo.test", text, "bob@far.example"))
		now, asked := time.Now(), 0
		key, err := secret.ParseKey(strings.Repeat("7", 64))
		if err != nil {
			t.Fatal(err)
		}
		s.Outbox.Keys = idempotency.New(s.DB, key, func() time.Time {
			if asked++; asked == 2 { // when the message is to be committed
				return now
			}
			return now.Add(idempotency.TTL + time.Hour)
		})
		if id, err := p.byKey("alice@demo.test", text, "bob@far.example"); !fault.Is(err, fault.RateLimited) {
			t.Errorf("accepted as %s, %v", id, err)
		}
		if n := len(messages(t, s, p.key.Account)); n != 1 {
			t.Errorf("%d are stored", n)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// must returns the id and fails the test on an error.
func must(t *testing.T) func(db.ID, error) db.ID {
	return func(id db.ID, err error) db.ID {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
}

// A template sets the subject and text of a submission; other fields and files stay.
func TestSubmitTemplate(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		made, err := s.Templates.Create(t.Context(), p.key.Account, template.CreateParams{Name: "Receipt", Alias: "receipt", Content: template.Content{
			Subject: "Order {{order}}, {{name}}", HTML: "<p>Thanks, {{name}}</p>",
			Variables: []template.Variable{{Key: "order", Type: template.TypeNumber, Required: true}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		head := "From: Shop <shop@demo.test>\r\nTo: bob@far.example\r\nReply-To: help@demo.test\r\nX-Order: 7\r\nSubject: not this\r\nMIME-Version: 1.0\r\n"
		vars := "X-Mailstead-Variables: =?utf-8?q?{=22order=22:7,=22name=22:=22Zo=C3=AB_<b>=22}?=\r\n"
		for what, c := range map[string]struct {
			text      string
			want, not []string
		}{
			"plain, by id": {"X-Mailstead-Template: " + made.ID.String() + "\r\n" + vars + head + "Content-Type: text/plain\r\n\r\nnot this\r\n",
				[]string{"Reply-To: help@demo.test\r\nX-Order: 7\r\n", "Subject: =?utf-8?b?T3JkZXIgNywgWm/DqyA8Yj4=?=", "multipart/alternative", "Thanks, Zo=C3=AB &lt;b&gt;"}, []string{"not this", "X-Mailstead"}},
			"with files, by alias": {"X-Mailstead-Template: receipt\r\n" + vars + head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nnot this\r\n--b\r\n" +
				"Content-Type: application/pdf\r\nContent-Disposition: attachment; filename=\"a b.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\nUERG\r\n--b\r\n" +
				"Content-Type: image/png\r\nContent-ID: <logo@x>\r\nContent-Disposition: inline\r\n\r\nPNG\r\n--b\r\n" +
				"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/zip\r\n\r\nZIP\r\n--c--\r\n--b--\r\n",
				[]string{"multipart/mixed", "multipart/alternative", "Thanks", "Content-ID: <logo@x>", "UE5H", "application/pdf", "filename=\"a b.pdf\"", "UERG", "message/rfc822", "Subject: inner", "ZIP"}, []string{"not this"}},
		} {
			id, err := p.byKey("shop@demo.test", c.text, "bob@far.example")
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			text := sent(t, s, id)
			rest := text
			for _, w := range c.want {
				_, after, found := strings.Cut(rest, w)
				if !found {
					t.Errorf("%s: %q is not where it should be in\n%s", what, w, text)
					break
				}
				rest = after
			}
			for _, n := range c.not {
				if strings.Contains(text, n) {
					t.Errorf("%s: has %q:\n%s", what, n, text)
				}
			}
			if n := strings.Count(text, "application/zip"); n > 1 {
				t.Errorf("%s: what is attached to an attached message is there %d times", what, n)
			}
			if m := p.get(id); m.Template != made.ID || m.TemplateVersion != 1 || m.Subject != "Order 7, Zo\u00eb <b>" {
				t.Errorf("%s: stored %+v", what, m)
			}
		}
		for what, c := range map[string]struct{ fields, names string }{
			"no such template":  {"X-Mailstead-Template: nothing\r\n", "X-Mailstead-Template"},
			"another's":         {"X-Mailstead-Template: " + p.DB.NewID().String() + "\r\n", "X-Mailstead-Template"},
			"a missing value":   {"X-Mailstead-Template: receipt\r\n", "X-Mailstead-Variables is not valid: variables.order"},
			"a wrong value":     {"X-Mailstead-Template: receipt\r\nX-Mailstead-Variables: {\"order\":\"x\"}\r\n", "variables.order"},
			"no object":         {"X-Mailstead-Template: receipt\r\nX-Mailstead-Variables: [7]\r\n", "X-Mailstead-Variables"},
			"a broken object":   {"X-Mailstead-Template: receipt\r\nX-Mailstead-Variables: {\"order\":\r\n", "X-Mailstead-Variables"},
			"values for nobody": {"X-Mailstead-Variables: {}\r\n", "X-Mailstead-Variables"},
		} {
			_, err := p.byKey("shop@demo.test", c.fields+head+"\r\nHi\r\n", "bob@far.example")
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
