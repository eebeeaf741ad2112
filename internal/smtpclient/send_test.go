// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"
)

func TestSendToARealServer(t *testing.T) {
	s := &sink{}
	c := dial(t, options(serve(t, s, false, nil)))
	if e := c.Extensions(); !e.Pipelining || !e.EightBit || !e.UTF8 || !e.DSN || !e.Chunking || !e.EnhancedStatusCodes {
		t.Errorf("extensions %+v", e)
	}
	m := message("b@mx.test", "nobody@mx.test", "c@mx.test")
	m.Size, m.Ret, m.EnvID = 23, "HDRS", "id+1 x"
	m.To[0].Notify, m.To[0].ORCPT = NotifyFailure|NotifySuccess, "rfc822;b+x@mx.test"
	m.Prefix = []byte("X-First: 1\r\n")
	m.Body = strings.NewReader("Subject: hi\r\n\r\n.dot\r\n..two\r\nlast")
	r := c.Send(context.Background(), m)
	if got := classes(r); got != "delivered,permanent,delivered" || r.Err != nil {
		t.Fatalf("%s, %v\n%s", got, r.Err, r.Transcript)
	}
	if o := r.Outcomes[1]; o.Stage != StageRcpt || o.Reply.String() != "550 5.1.1 no such user" || o.Local {
		t.Errorf("refused recipient: %+v", o)
	}
	got := s.got[0]
	if got.data != "X-First: 1\r\nSubject: hi\r\n\r\n.dot\r\n..two\r\nlast\r\n" {
		t.Errorf("arrived as %q", got.data)
	}
	if got.opts.EnvelopeID != "id+1 x" || got.opts.Return != smtp.DSNReturnHeaders || len(got.rcpt[0].Notify) != 2 ||
		got.rcpt[0].OriginalRecipient != "b+x@mx.test" {
		t.Errorf("DSN parameters %+v %+v", got.opts, got.rcpt[0])
	}
	for _, line := range []string{"C: EHLO client.test", "S: 250-PIPELINING", "C: DATA", "S: 550 5.1.1 no such user", "octets of message sent", "S: 250 2.0.0"} {
		if !strings.Contains(r.Transcript, line) {
			t.Errorf("the transcript lacks %q:\n%s", line, r.Transcript)
		}
	}
	if strings.Contains(r.Transcript, "last") {
		t.Error("the message is in the transcript")
	}
	if r = c.Send(context.Background(), message("d@mx.test")); classes(r) != "delivered" || !strings.Contains(r.Transcript, "reused") {
		t.Errorf("second message: %s\n%s", classes(r), r.Transcript)
	}
}

// Every message after the first is sent in one write after its predecessor's bytes, in the order
// that RFC 2920 allows.
func TestEachPipelinesAcrossMessages(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("PIPELINING")
		for range 2 {
			h.hear("MAIL FROM:<a@client.test>")
			h.hear("RCPT TO:<b@mx.test>")
			h.hear("DATA")
			if h.n++; h.n == 2 {
				h.say("250 ok", "250 ok", "354 go")
			}
			if h.n == 3 {
				// Reply to the first only now, after reading the next group.
				h.say("250 first", "250 ok", "250 ok", "354 go")
			}
			h.message()
		}
		h.say("250 second")
		h.wait()
	})
	c := dial(t, options(addr))
	queue := []*Message{message("b@mx.test"), message("b@mx.test")}
	var got []string
	c.SendAll(context.Background(), func() *Message {
		if len(queue) == 0 {
			return nil
		}
		m := queue[0]
		queue = queue[1:]
		return m
	}, func(_ *Message, r *Result) {
		got = append(got, r.Outcomes[0].Class.String()+" "+r.Outcomes[0].Reply.Text())
	})
	if want := []string{"delivered first", "delivered second"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestEachOverARealServer(t *testing.T) {
	s := &sink{}
	c := dial(t, options(serve(t, s, false, nil)))
	n, delivered, refused := 0, 0, 0
	c.SendAll(context.Background(), func() *Message {
		if n == 300 {
			return nil
		}
		n++
		m := message("b@mx.test")
		if n%100 == 50 {
			m = message("nobody@mx.test")
		}
		m.Body = strings.NewReader(fmt.Sprintf("Subject: %d\r\n\r\nx\r\n", n))
		return m
	}, func(_ *Message, r *Result) {
		switch r.Outcomes[0].Class {
		case Delivered:
			delivered++
		case Permanent:
			refused++
		default:
			t.Errorf("%s: %v\n%s", classes(r), r.Err, r.Transcript)
		}
	})
	if delivered != 297 || refused != 3 || len(s.got) != 297 || s.sessions != 1 {
		t.Errorf("delivered %d, refused %d, arrived %d in %d sessions", delivered, refused, len(s.got), s.sessions)
	}
}

// Without PIPELINING no command is sent before the reply to the last one, and DATA is not sent if
// no recipient was accepted.
func TestWithoutPipelining(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("SIZE 1000")
		for _, rcpt := range []string{"550 no", "250 ok"} {
			h.hear("MAIL")
			if h.br.Buffered() > 0 {
				h.t.Error("a command came before the reply to MAIL")
			}
			h.say("250 ok")
			h.hear("RCPT")
			h.say(rcpt)
			if rcpt[0] == '5' {
				h.hear("RSET")
				h.say("250 ok")
			}
		}
		h.hear("DATA")
		h.say("354 go")
		h.message()
		h.say("250 done")
		h.wait()
	})
	c := dial(t, options(addr))
	if r := c.Send(context.Background(), message("b@mx.test")); classes(r) != "permanent" {
		t.Errorf("first: %s\n%s", classes(r), r.Transcript)
	}
	if r := c.Send(context.Background(), message("b@mx.test")); classes(r) != "delivered" {
		t.Errorf("second: %s\n%s", classes(r), r.Transcript)
	}
}

// RFC 2920 section 3.1: a 354 although no recipient was accepted gets a lone dot.
func TestLoneDotWhenNobodyWasAccepted(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("PIPELINING")
		h.hear("MAIL")
		h.hear("RCPT")
		h.hear("DATA")
		h.say("250 ok", "550 5.1.1 no", "354 go")
		if got := h.message(); got != "" {
			h.t.Errorf("bytes of a message without recipients: %q", got)
		}
		h.say("250 thank you for nothing")
		h.wait()
	})
	c := dial(t, options(addr))
	r := c.Send(context.Background(), message("b@mx.test"))
	if o := r.Outcomes[0]; o.Class != Permanent || o.Reply.Enhanced != "5.1.1" {
		t.Errorf("%+v", o)
	}
	if !c.Usable() {
		t.Error("the connection should be usable")
	}
}

// A message whose bytes end in an error must not end in a dot.
func TestUnreadableBodyIsNeverFinished(t *testing.T) {
	tail := make(chan string, 1)
	addr := script(t, func(h *host) {
		h.greet("PIPELINING")
		h.hear("MAIL")
		h.hear("RCPT")
		h.hear("DATA")
		h.say("250 ok", "250 ok", "354 go")
		tail <- h.wait()
	})
	c := dial(t, options(addr))
	m := message("b@mx.test")
	broken := errors.New("disk trouble")
	m.Body = io.MultiReader(strings.NewReader(strings.Repeat("x\r\n", 20000)), failing{broken})
	r := c.Send(context.Background(), m)
	if classes(r) != "temporary" || !errors.Is(r.Err, broken) || c.Usable() || r.StaleConn {
		t.Errorf("%s, %v", classes(r), r.Err)
	}
	if got := <-tail; strings.Contains(got, "\n.\r\n") {
		t.Error("the host got a final dot")
	}
}

// A 250 that arrives together with 354 is not the reply to the final dot.
func TestReplyAheadOfTheMessage(t *testing.T) {
	for _, extensions := range [][]string{nil, {"PIPELINING"}} {
		tail := make(chan string, 1)
		addr := script(t, func(h *host) {
			h.greet(extensions...)
			h.hear("MAIL")
			h.say("250 ok")
			h.hear("RCPT")
			h.say("250 ok")
			h.hear("DATA")
			h.say("354 go", "250 ok")
			tail <- h.wait()
		})
		c := dial(t, options(addr))
		r := c.Send(context.Background(), message("b@mx.test"))
		if classes(r) != "temporary" || c.Usable() || r.StaleConn {
			t.Errorf("%s\n%s", classes(r), r.Transcript)
		}
		_ = c.Close()
		if got := <-tail; got != "" {
			t.Errorf("the host got %q", got)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestManyRecipientsGoInWindows(t *testing.T) {
	s := &sink{}
	c := dial(t, options(serve(t, s, false, nil)))
	m := &Message{From: "a@client.test", Body: strings.NewReader("x\r\n")}
	for i := range 1000 {
		m.To = append(m.To, Rcpt{Addr: fmt.Sprintf("user%d@mx.test", i)})
	}
	r := c.Send(context.Background(), m)
	for i, o := range r.Outcomes {
		if o.Class != Delivered {
			t.Fatalf("recipient %d: %+v", i, o)
		}
	}
	if len(s.got) != 1 || len(s.got[0].to) != 1000 {
		t.Errorf("%d messages arrived", len(s.got))
	}
	if len(r.Transcript) > 8<<10+100 || !strings.Contains(r.Transcript, "left out") || !strings.Contains(r.Transcript, "S: 250 2.0.0 OK: queued") {
		t.Errorf("transcript of %d bytes:\n%s", len(r.Transcript), r.Transcript)
	}
}

func TestLocalRefusals(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("PIPELINING", "SIZE 1000", "LIMITS RCPTMAX=1 MAILMAX=1")
		if got := h.wait(); got != "QUIT\r\n" {
			h.t.Errorf("the host was asked for something: %q", got)
		}
	})
	c := dial(t, options(addr))
	for _, tt := range []struct {
		name, enhanced string
		set            func(*Message)
	}{
		{"too big", "5.3.4", func(m *Message) { m.Size = 1001 }},
		{"UTF-8 headers", "5.6.7", func(m *Message) { m.UTF8 = true }},
		{"UTF-8 sender", "5.6.7", func(m *Message) { m.From = "ä@client.test" }},
		{"UTF-8 recipient", "5.6.7", func(m *Message) { m.To[0].Addr = "ü@mx.test" }},
		{"eight bits", "5.6.3", func(m *Message) { m.EightBit = true }},
		{"REQUIRETLS", "5.7.30", func(m *Message) { m.RequireTLS = true }},
		{"command in the sender", "5.1.7", func(m *Message) { m.From = "a@x>\r\nRCPT TO:<evil@mx.test" }},
		{"command in a recipient", "5.1.3", func(m *Message) { m.To[0].Addr = "a@x\nDATA" }},
		{"parameter in a recipient", "5.1.3", func(m *Message) { m.To[0].Addr = `"a"@x> NOTIFY=NEVER` }},
		{"no recipient address", "5.1.3", func(m *Message) { m.To[0].Addr = "" }},
	} {
		m := message("b@mx.test")
		tt.set(m)
		r := c.Send(context.Background(), m)
		if o := r.Outcomes[0]; o.Class != Permanent || !o.Local || o.Reply.Enhanced != tt.enhanced || o.Reply.Code != 0 {
			t.Errorf("%s: %+v", tt.name, o)
		}
	}
	_ = c.Close()
}

func TestReplies(t *testing.T) {
	ok := []string{"250 ok", "250 ok", "250 ok", "354 go", "250 done"} // MAIL, RCPT, RCPT, DATA, dot
	with := func(i int, s string) []string {
		r := slices.Clone(ok)
		r[i] = s
		return r
	}
	noMail := func(s string) []string { return []string{s, "503 MAIL first", "503 MAIL first", "503 RCPT first", ""} }
	for _, tt := range []struct {
		name    string
		replies []string
		want    string
		stage   Stage
		usable  bool
	}{
		{"all well", ok, "delivered,delivered", StageFinal, true},
		{"251 is taken", with(1, "251 will forward"), "delivered,delivered", StageFinal, true},
		{"5xx to MAIL", noMail("550 5.7.1 no"), "permanent,permanent", StageMail, true},
		{"4xx to MAIL", noMail("451 later"), "temporary,temporary", StageMail, true},
		{"5xx to MAIL, and on with it", with(0, "550 5.7.1 no"), "permanent,permanent", StageMail, false},
		{"421 to MAIL", with(0, "421 bye"), "temporary,temporary", StageMail, false},
		{"4xx to RCPT", with(1, "450 greylisted"), "temporary,delivered", StageRcpt, true},
		{"452 to the second", with(2, "452 4.5.3 too many recipients"), "delivered,next transaction", StageFinal, true},
		{"552 to the second", with(2, "552 Too many recipients"), "delivered,next transaction", StageFinal, true},
		{"552 to the first", with(1, "552 Too many recipients"), "temporary,delivered", StageRcpt, true},
		{"552 for a full mailbox", with(2, "552 5.2.2 mailbox full"), "delivered,permanent", StageFinal, true},
		{"5xx to DATA", with(3, "554 no"), "permanent,permanent", StageData, true},
		{"250 to DATA", with(3, "250 what?"), "temporary,temporary", StageData, false},
		{"4xx to the dot", with(4, "451 4.3.0 later"), "temporary,temporary", StageFinal, true},
		{"5xx to the dot", with(4, "554 5.7.1 spam"), "permanent,permanent", StageFinal, true},
		{"421 to the dot", with(4, "421 4.3.2 going down"), "temporary,temporary", StageFinal, false},
		{"no reply at all to MAIL", with(0, "hello there"), "temporary,temporary", StageMail, false},
		{"endless reply", with(0, strings.Repeat("250-more\r\n", 7000)+"250 end"), "temporary,temporary", StageMail, false},
		{"one long line", with(0, "250 "+strings.Repeat("x", 30000)), "delivered,delivered", StageFinal, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := script(t, func(h *host) {
				h.greet("PIPELINING")
				for range 4 {
					_, _ = h.br.ReadString('\n')
				}
				h.say(tt.replies[:4]...)
				h.follow(map[string]string{".": tt.replies[4], "RSET": "250 ok", "QUIT": "221 bye"})
			})
			c := dial(t, options(addr))
			r := c.Send(context.Background(), message("b@mx.test", "c@mx.test"))
			if got := classes(r); got != tt.want || r.Outcomes[0].Stage != tt.stage || c.Usable() != tt.usable || r.StaleConn {
				t.Errorf("%s at %s, usable %v, stale %v, %v\n%s", got, r.Outcomes[0].Stage, c.Usable(), r.StaleConn, r.Err, r.Transcript)
			}
		})
	}
}
