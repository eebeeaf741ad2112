// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/spam"
	"github.com/mailstead/mailstead/internal/summary"
)

// thinks sets a filter with the same result for all mail.
func (h *fixture) thinks(o summary.SpamResult) {
	h.Service.SpamFilter = func(_ context.Context, m *spam.Message) ([]summary.SpamResult, error) {
		all := make([]summary.SpamResult, len(m.To))
		for n := range all {
			all[n] = o
		}
		return all, nil
	}
}

// softer sets the spam filter setting of a mailbox.
func (h *fixture) softer(box mailbox.Mailbox, f mailbox.SpamFilter) {
	h.t.Helper()
	changed, err := h.boxes.Update(h.t.Context(), h.account, box.ID, mailbox.Change{SpamFilter: &f})
	if err != nil || changed.SpamFilter != f {
		h.t.Fatalf("%s: %+v, %v", f, changed, err)
	}
}

// The mailbox's setting overrides the filter's result, and the domain's setting overrides the
// mailbox's.
func TestSpamFilterOfMailbox(t *testing.T) {
	const refused, inbox = "refused", "INBOX"
	each(t, func(h *fixture) {
		t := h.t
		box := h.box("box", 100)
		seen := len(h.places(0))
		for _, tt := range []struct {
			score                        float64
			action                       summary.SpamAction
			off, lenient, normal, strict string
			softDomain                   string // folder with the normal setting if the domain rejects nothing
		}{
			{0, summary.ActionAccept, inbox, inbox, inbox, inbox, inbox},
			{2.9, summary.ActionAccept, inbox, inbox, inbox, inbox, inbox},
			{3, summary.ActionAccept, inbox, inbox, inbox, folder.Junk, inbox},
			{6, summary.ActionJunk, inbox, inbox, folder.Junk, folder.Junk, folder.Junk},
			{11.9, summary.ActionJunk, inbox, inbox, folder.Junk, folder.Junk, folder.Junk},
			{12, summary.ActionJunk, inbox, folder.Junk, folder.Junk, folder.Junk, folder.Junk},
			{20, summary.ActionReject, inbox, folder.Junk, refused, refused, folder.Junk},
			{5, summary.ActionDefer, inbox, inbox, refused, refused, inbox},
		} {
			h.thinks(summary.SpamResult{Score: tt.score, Threshold: 6, Action: tt.action})
			try := func(name, want string) {
				t.Helper()
				_, err := h.send(mail, box.Address)
				if err != nil != (want == refused) {
					t.Errorf("%v, %s: %v", tt.score, name, err)
				}
				all := h.places(0)
				if seen = len(all); want != refused && all[seen-1] != want {
					t.Errorf("%v, %s: in %s, want %s", tt.score, name, all[seen-1], want)
				}
			}
			for f, want := range map[mailbox.SpamFilter]string{
				mailbox.SpamOff: tt.off, mailbox.SpamLenient: tt.lenient, mailbox.SpamNormal: tt.normal, mailbox.SpamStrict: tt.strict,
			} {
				h.softer(box, f)
				try(string(f), want)
			}
			h.softer(box, mailbox.SpamNormal)
			h.setFiltering(domain.EnforceJunk)
			try("normal, in a soft domain", tt.softDomain)
			h.softer(box, mailbox.SpamStrict)
			h.setFiltering(domain.EnforceOff)
			try("strict, in a domain without a filter", inbox)
			h.setFiltering(domain.EnforceFully)
		}
		bad := mailbox.SpamFilter("some")
		_, err := h.boxes.Update(t.Context(), h.account, box.ID, mailbox.Change{SpamFilter: &bad})
		wantKind(t, err, fault.Invalid, "validation_failed")
	})
}

func (h *fixture) setFiltering(e domain.Enforcement) {
	h.t.Helper()
	if _, err := h.Domains.Update(h.t.Context(), h.account, h.domain, domain.Change{SpamFiltering: &e}); err != nil && !fault.Is(err, fault.NotFound) {
		h.t.Fatal(err)
	}
}

// Two mailboxes with different settings get the same message by their own settings, with their own
// thresholds.
func TestSpamFilterSideBySide(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		strict, lenient := h.box("strict", 10), h.box("lenient", 10)
		h.softer(strict, mailbox.SpamStrict)
		h.softer(lenient, mailbox.SpamLenient)
		h.thinks(summary.SpamResult{Score: 20, Threshold: 15, Action: summary.ActionReject})
		if _, err := h.send(mail, strict.Address, lenient.Address); err != nil {
			t.Fatal(err)
		}
		h.thinks(summary.SpamResult{Score: 8, Threshold: 15, LenientThreshold: 10, StrictThreshold: 3})
		if _, err := h.send(mail, strict.Address, lenient.Address); err != nil {
			t.Fatal(err)
		}
		for box, want := range map[mailbox.Mailbox]string{strict: `\Junk Yes 7.5, \Junk Yes 3`, lenient: `\Junk Yes 30, INBOX No 10`} {
			var got []string
			for n, one := range h.filed(box) {
				_, said, _ := strings.Cut(one.text, "\r\nX-Spam-Status: ")
				said, _, _ = strings.Cut(said, "\r\n")
				word, required, _ := strings.Cut(said, ", ")
				_, required, _ = strings.Cut(required, "required=")
				got = append(got, fmt.Sprint(h.places(box.ID)[n], " ", word, " ", required))
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("%s: %q, want %s", box.Address, got, want)
			}
		}
	})
}
