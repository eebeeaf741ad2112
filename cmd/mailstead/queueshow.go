// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server"
)

type queueShow struct {
	where
	ID         string `arg:"" help:"The message's id, as queue list shows it."`
	Transcript bool   `help:"Show the SMTP conversations too." env:"-"`
	JSON       bool   `name:"json" help:"Print it as JSON, conversations included." env:"-"`
}

func (c *queueShow) Run() error {
	return c.desk(func(ctx context.Context, d *server.Desk) error {
		id, err := messageID(c.ID)
		if err != nil {
			return err
		}
		m, err := d.Queue.Show(ctx, id)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(os.Stdout, shownMessage(m))
		}
		whose := m.Account.String()
		if acc, err := d.Accounts.Get(ctx, m.Account); err == nil {
			whose = acc.Email + " (" + whose + ")"
		}
		var b strings.Builder
		c.write(&b, m, whose)
		_, err = io.WriteString(os.Stdout, b.String())
		return err
	})
}

func (c *queueShow) write(b *strings.Builder, m queue.Shown, whose string) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) }
	say("message   %s", m.ID)
	say("account   %s", whose)
	if m.Letter != (queue.Letter{}) {
		say("from      %s", printable(m.Letter.From, 200))
		if m.Letter.Sender != "" {
			say("sender    %s", printable(m.Letter.Sender, 200))
		}
		say("subject   %s", printable(m.Letter.Subject, 200))
		say("          %s, %d bytes", printable(m.Letter.MessageID, 200), m.Letter.Size)
	}
	say("accepted  %s (%s ago)", moment(m.ID.Time()), age(m.ID.Time()))
	say("status    %s", m.Status)
	for _, r := range m.Deliveries {
		say("")
		say("%s  %s", printable(r.Recipient, 320), stateText(r.State, r.Held))
		switch {
		case r.Held:
			say("  held by an operator")
		case !r.State.Final() && r.State != queue.Sending:
			say("  next try %s, until %s", moment(r.DueAt), moment(r.ExpiresAt))
		}
		for _, t := range m.Attempts {
			if t.N != r.N {
				continue
			}
			try := fmt.Sprintf("attempt %d", t.Attempt)
			if t.Attempt == 0 {
				try = "later"
			}
			say("  %-9s  %s  %s  %s %s%s", try, moment(t.StartedAt), t.Outcome, printable(t.Host, 255), t.IP, stage(t.Stage))
			if text := answerText(t.Code, t.Enhanced, t.Reply); text != "" {
				say("    %s", printable(text, 400))
			}
			if c.Transcript {
				for line := range strings.Lines(t.Transcript) {
					say("    | %s", printable(strings.TrimRight(line, "\r\n"), 1000))
				}
			}
		}
		if text := answerText(r.Code, r.Enhanced, r.Reply); text != "" && r.Attempts == 0 {
			say("  %s", printable(text, 400))
		}
	}
}

func stage(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func stateText(s queue.State, held bool) string {
	if held {
		return string(s) + ", held"
	}
	return string(s)
}

func answerText(code int, enhanced, reply string) string {
	text := reply
	if enhanced != "" {
		text = enhanced + " " + text
	}
	if code != 0 {
		text = fmt.Sprint(code, " ", text)
	}
	return strings.TrimSpace(text)
}

// jsonMessage is a message in the API's words, as are those below it.
type jsonMessage struct {
	ID         db.ID           `json:"id"`
	AccountID  db.ID           `json:"account_id"`
	Status     queue.State     `json:"status"`
	From       string          `json:"from"`
	Sender     *string         `json:"sender"`
	Subject    string          `json:"subject"`
	MessageID  string          `json:"message_id"`
	Size       int64           `json:"size"`
	Recipients []jsonRecipient `json:"recipients"`
	CreatedAt  time.Time       `json:"created_at"`
}

type jsonRecipient struct {
	Email         string        `json:"email"`
	Type          string        `json:"type"`
	Status        queue.State   `json:"status"`
	Held          bool          `json:"held,omitempty"`
	SMTPCode      int           `json:"smtp_code,omitempty"`
	EnhancedCode  string        `json:"enhanced_code,omitempty"`
	Reply         string        `json:"reply,omitempty"`
	Remote        string        `json:"remote,omitempty"`
	Attempts      int           `json:"attempts"`
	NextAttemptAt *time.Time    `json:"next_attempt_at,omitempty"`
	UpdatedAt     time.Time     `json:"updated_at"`
	Timeline      []jsonAttempt `json:"timeline,omitempty"`
}

type jsonAttempt struct {
	Attempt      int         `json:"attempt"`
	At           time.Time   `json:"at"`
	DurationMS   float64     `json:"duration_ms"`
	Outcome      queue.State `json:"outcome"`
	Host         string      `json:"host,omitempty"`
	IP           string      `json:"ip,omitempty"`
	TLS          string      `json:"tls,omitempty"`
	Stage        string      `json:"stage,omitempty"`
	SMTPCode     int         `json:"smtp_code,omitempty"`
	EnhancedCode string      `json:"enhanced_code,omitempty"`
	Reply        string      `json:"reply,omitempty"`
	Transcript   string      `json:"transcript,omitempty"`
}

func shownMessage(m queue.Shown) jsonMessage {
	out := jsonMessage{
		ID: m.ID, AccountID: m.Account, Status: m.Status, From: m.Letter.From, Sender: optional(m.Letter.Sender), Subject: m.Letter.Subject,
		MessageID: m.Letter.MessageID, Size: m.Letter.Size, CreatedAt: m.ID.Time(), Recipients: []jsonRecipient{},
	}
	for _, r := range m.Deliveries {
		one := jsonRecipient{
			Email: r.Recipient, Type: r.Kind, Status: r.State, Held: r.Held, SMTPCode: r.Code, EnhancedCode: r.Enhanced, Reply: r.Reply,
			Remote: r.Remote, Attempts: r.Attempts, UpdatedAt: r.UpdatedAt,
		}
		if !r.Held && (r.State == queue.Deferred || r.State == queue.Scheduled) {
			one.NextAttemptAt = optional(r.DueAt)
		}
		for _, t := range m.Attempts {
			if t.N == r.N {
				one.Timeline = append(one.Timeline, jsonAttempt{
					Attempt: t.Attempt, At: t.StartedAt, DurationMS: float64(t.Took.Microseconds()) / 1000, Outcome: t.Outcome, Host: t.Host, IP: t.IP,
					TLS: t.TLS, Stage: t.Stage, SMTPCode: t.Code, EnhancedCode: t.Enhanced, Reply: t.Reply, Transcript: t.Transcript,
				})
			}
		}
		out.Recipients = append(out.Recipients, one)
	}
	return out
}
