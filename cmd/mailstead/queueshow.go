// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/server"
)

type queueShow struct {
	serviceFlags
	ID         string `arg:"" help:"The message's id, as queue list shows it."`
	Transcript bool   `help:"Show the SMTP conversations too." env:"-"`
	JSON       bool   `name:"json" help:"Print it as JSON, conversations included." env:"-"`
}

func (c *queueShow) Run() error {
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		id, err := parseMessageID(c.ID)
		if err != nil {
			return err
		}
		m, err := d.Queue.Show(ctx, id)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(os.Stdout, api.NewQueueMessageResponse(m))
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

func (c *queueShow) write(b *strings.Builder, m admin.MessageDetails, whose string) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) }
	say("message   %s", m.ID)
	say("account   %s", whose)
	if m.View != (admin.MessageView{}) {
		say("from      %s", printable(m.View.From, 200))
		if m.View.Sender != "" {
			say("sender    %s", printable(m.View.Sender, 200))
		}
		say("subject   %s", printable(m.View.Subject, 200))
		say("          %s, %d bytes", printable(m.View.MessageID, 200), m.View.Size)
	}
	say("accepted  %s (%s ago)", formatTime(m.ID.Time()), formatAge(m.ID.Time()))
	say("status    %s", m.Status)
	for _, r := range m.Deliveries {
		say("")
		say("%s  %s", printable(r.Recipient, 320), formatState(r.State, r.Held))
		switch {
		case r.Held:
			say("  held by an operator")
		case !r.State.Final() && r.State != queue.Sending:
			say("  next try %s, until %s", formatTime(r.DueAt), formatTime(r.ExpiresAt))
		}
		for _, t := range m.Attempts {
			if t.N != r.N {
				continue
			}
			try := fmt.Sprintf("attempt %d", t.Number)
			if t.Number == 0 {
				try = "later"
			}
			say("  %-9s  %s  %s  %s %s%s", try, formatTime(t.StartedAt), t.Outcome, printable(t.Host, 255), t.IP, formatStage(t.Stage))
			if text := formatReply(t.Code, t.Enhanced, t.Reply); text != "" {
				say("    %s", printable(text, 400))
			}
			if c.Transcript {
				for line := range strings.Lines(t.Transcript) {
					say("    | %s", printable(strings.TrimRight(line, "\r\n"), 1000))
				}
			}
		}
		if text := formatReply(r.Code, r.Enhanced, r.Reply); text != "" && r.Attempts == 0 {
			say("  %s", printable(text, 400))
		}
	}
}

func formatStage(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func formatState(s queue.State, held bool) string {
	if held {
		return string(s) + ", held"
	}
	return string(s)
}

func formatReply(code int, enhanced, reply string) string {
	text := reply
	if enhanced != "" {
		text = enhanced + " " + text
	}
	if code != 0 {
		text = fmt.Sprint(code, " ", text)
	}
	return strings.TrimSpace(text)
}
