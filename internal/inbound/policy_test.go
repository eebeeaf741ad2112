// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/message/messagetest"
	"github.com/mailstead/mailstead/internal/summary"
)

// judged sets up a house that verifies mail, with the policies of a few domains.
func (h *fixture) verified() *dnstest.Zone {
	h.t.Helper()
	addr, zone := dnstest.Start(h.t,
		`good.test. TXT "v=spf1 ip4:192.0.2.7 -all"`, `_dmarc.good.test. TXT "v=DMARC1; p=reject"`,
		`bank.test. TXT "v=spf1 ip4:198.51.100.1 exp=why.bank.test -all"`, `why.bank.test. TXT "%{i} is none of our hosts"`,
		`_dmarc.bank.test. TXT "v=DMARC1; p=reject"`,
		`_dmarc.shop.test. TXT "v=DMARC1; p=quarantine"`,
		`_dmarc.loose.test. TXT "v=DMARC1; p=none"`,
		`7.2.0.192.in-addr.arpa. PTR client.example.`, `client.example. A 192.0.2.7`)
	h.Verifier = &mailauth.Verifier{DNS: dnstest.Resolver(h.t, addr), Now: time.Now}
	h.MaxEnforcement = domain.EnforceFully
	return zone
}

// from sends a message with the given header from 192.0.2.7.
func (h *fixture) from(sender, header string, to ...string) error {
	h.t.Helper()
	from := addr(h.t, sender)
	l := h.Begin(&from, 0)
	for _, one := range to {
		if err := l.AddRecipient(h.t.Context(), addr(h.t, one)); err != nil {
			h.t.Fatal(err)
		}
	}
	_, err := l.ReceiveMessage(h.t.Context(), received, strings.NewReader(header+"Subject: x\r\n\r\nx\r\n"))
	return err
}

var placesOf = db.SQL(`SELECT f.mailbox, f.special_use FROM folder_message m JOIN folder f ON f.id = m.folder ORDER BY m.message`)

// places returns the folders of messages, oldest first: of one mailbox, or of all if box is 0.
func (h *fixture) places(box db.ID) (in []string) {
	h.t.Helper()
	err := h.db.Each(h.t.Context(), placesOf.With(), func(r db.Row) error {
		var of db.ID
		var special string
		err := r.Scan(&of, &special)
		if box == 0 || box == of {
			in = append(in, cmp.Or(special, "INBOX"))
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return in
}

func TestVerified(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		zone := h.verified()
		zone.ServFail("_dmarc.dead.test")
		zone.ServFail("slow.test")
		zone.Set("_dmarc.slow.test", `TXT "v=DMARC1; p=reject"`)
		for n, tt := range []struct {
			name, sender, header string
			want                 string // folder, or the beginning of the error
			checkResults         string
			results              string
		}{
			{"pass", "a@good.test", "From: a@good.test\r\n", "INBOX", "spf=pass dmarc=pass",
				"iprev=pass policy.iprev=192.0.2.7 (client.example); spf=pass smtp.mailfrom=good.test; dkim=none; dmarc=pass header.from=good.test"},
			{"reject", "a@good.test", "From: a@bank.test\r\n", "550 5.7.1 The DMARC policy of bank.test refuses this message: no SPF or DKIM result speaks for it", "", ""},
			{"reject, explained", "a@bank.test", "From: a@bank.test\r\n", "550 5.7.1 The DMARC policy of bank.test refuses this message: no SPF or DKIM result speaks for it; the sender's domain says: 192.0.2.7 is none of our hosts", "", ""},
			{"quarantine", "a@good.test", "From: a@shop.test\r\n", folder.Junk, "spf=pass dmarc=fail",
				"iprev=pass policy.iprev=192.0.2.7 (client.example); spf=pass smtp.mailfrom=good.test; dkim=none; dmarc=fail (p=quarantine) header.from=shop.test"},
			{"none", "a@good.test", "From: a@loose.test\r\n", "INBOX", "spf=pass dmarc=fail", ""},
			{"no policy", "a@good.test", "From: a@plain.test\r\n", "INBOX", "spf=pass", ""},
			{"no policy known", "a@good.test", "From: a@dead.test\r\n", "451 4.7.0 The DMARC policy of dead.test could not be looked up", "", ""},
			{"SPF unknown", "a@slow.test", "From: a@slow.test\r\n", "INBOX", "spf=temperror dmarc=temperror", ""},
			{"two From", "a@good.test", "From: a@good.test\r\nFrom: b@good.test\r\n", "550 5.7.1 The author of this message can't be told: the message has more than one From field. Send it with one From", "", ""},
			{"no From", "a@good.test", "Sender: a@good.test\r\n", "550 5.7.1 The author of this message can't be told: the message has no From field", "", ""},
			{"a name that is an address", "a@good.test", "From: \"ceo@bank.test\" <a@good.test>\r\n", folder.Junk, "spf=pass dmarc=permerror author=other_name",
				"iprev=pass policy.iprev=192.0.2.7 (client.example); spf=pass smtp.mailfrom=good.test; dkim=none; dmarc=permerror reason=\"the name in its From field shows another address\" \theader.from=good.test"},
			{"an address for a name", "a@good.test", "From: ceo@loose.test <a@good.test>\r\n", folder.Junk, "spf=pass dmarc=permerror author=unclear_from", ""},
			{"a strict address for a name", "a@good.test", "From: ceo@bank.test <a@good.test>\r\n", "550 5.7.1 The author of this message can't be told: mail readers may read", "", ""},
			{"a comma in the name", "a@good.test", "From: Lee, Ann <a@good.test>\r\n", "INBOX", "spf=pass dmarc=pass", ""},
			{"two From, one strict", "a@good.test", "From: a@good.test\r\nFrom: b@bank.test\r\n", "550 5.7.1 The author of this message can't be told: the message has more than one From", "", ""},
			{"a NUL in a name", "a@good.test", "From: a@good.test\r\nFrom\x00: ceo@bank.test\r\n", "554 5.6.0 The message's header has a NUL", "", ""},
			{"a NUL before a name", "a@good.test", "\x00From: ceo@bank.test\r\nFrom: a@good.test\r\n", "554 5.6.0 The message's header has a NUL", "", ""},
			{"a NUL in a value", "a@good.test", "From: a@good.test\r\nSubject: a\x00b\r\n", "554 5.6.0 The message's header has a NUL", "", ""},
			{"two authors", "a@good.test", "From: a@good.test, b@bank.test\r\n", "550 5.7.1 The author of this message can't be told: its From field has authors of different domains", "", ""},
			{"no author", "a@good.test", "From: somebody\r\n", folder.Junk, "spf=pass dmarc=permerror author=no_author", ""},
			{"forged", "a@good.test", "Authentication-Results: mail.host.test; dmarc=pass header.from=bank.test\r\nAuthentication-Results: other.test; spf=pass\r\nFrom: a@plain.test\r\n", "INBOX", "spf=pass", ""},
		} {
			box := h.box(fmt.Sprintf("box%d", n), 10)
			err := h.from(tt.sender, tt.header, box.Address)
			if err != nil {
				r, ours := inbound.ReplyFor(err)
				if got := fmt.Sprint(r.Code, " ", r.Enhanced, " ", r.Text); ours || !strings.HasPrefix(got, tt.want) {
					t.Errorf("%s: %s", tt.name, got)
				}
				if in := h.places(box.ID); len(in) > 0 {
					t.Errorf("%s: refused, and in %v", tt.name, in)
				}
				continue
			}
			if in := h.places(box.ID); len(in) != 1 || in[0] != tt.want {
				t.Errorf("%s: in %v, want %s", tt.name, in, tt.want)
				continue
			}
			text := h.filed(box)[0].text
			head, rest, _ := strings.Cut(text, "\r\nAuthentication-Results: mail.host.test;\r\n\t")
			if !strings.HasPrefix(head, "Return-Path: <"+tt.sender+">\r\nDelivered-To: "+box.Address+"\r\nReceived: from client.example") || strings.Count(text, "mail.host.test; ") != 0 {
				t.Errorf("%s:\n%s", tt.name, text)
			}
			if got, _, _ := strings.Cut(strings.ReplaceAll(rest, "\r\n\t", " "), "\r\n"); tt.results != "" && got != tt.results {
				t.Errorf("%s:\n%s, want\n%s", tt.name, got, tt.results)
			}
			all := h.arrivals()
			if v := arrivalOf(t, all[len(all)-1]).CheckResults; v != summary.ParseCheckResults(tt.checkResults) {
				t.Errorf("%s: the event says %s", tt.name, v)
			}
			if tt.name == "forged" && !strings.Contains(text, "Authentication-Results: other.test; spf=pass\r\n") {
				t.Errorf("another's results are gone:\n%s", text)
			}
		}
	})
}

// Mail whose author all mail readers read alike goes to the inbox. Other mail doesn't, and the
// error says why.
func TestAuthorsOfTable(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.verified().Set("own.test", `TXT "v=spf1 ip4:192.0.2.7 -all"`)
		box := h.box("box", 10)
		checkResults := map[string]string{}
		for _, from := range messagetest.Froms(t) {
			sender := addr(t, "x@own.test")
			l := h.Begin(&sender, 0)
			if err := l.AddRecipient(t.Context(), addr(t, box.Address)); err != nil {
				t.Fatal(err)
			}
			_, err := l.ReceiveMessage(t.Context(), received, message.RejectBareLineEnds(strings.NewReader("Message-ID: <"+strconv.Itoa(len(checkResults))+"@own.test>\r\nFrom: "+from.Value+"\r\nSubject: x\r\n\r\nx\r\n")))
			got := "INBOX"
			if err != nil {
				got = "refused"
				if r, ours := inbound.ReplyFor(err); ours || r.Code != 550 && (r.Code != 554 || !strings.Contains(from.Value, "\x00")) {
					t.Errorf("%q: %v", from.Value, err)
				}
			} else if where := h.places(box.ID); where[len(where)-1] != got {
				all := h.arrivals()
				got = where[len(where)-1]
				if v := arrivalOf(t, all[len(all)-1]).CheckResults; string(v.Author) != string(from.Problem) {
					t.Errorf("%q: the event says %q", from.Value, v.Author)
				}
			}
			if (got == "INBOX") != (from.Problem == "") {
				t.Errorf("%q: %s", from.Value, got)
			}
			checkResults[from.Value] = got
		}
	})
}

// A report, from the null sender, is never rejected for its From. It isn't junk because a mail
// server has no domain there.
func TestAuthorsOfReports(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.verified()
		null, sender := (*address.Address)(nil), addr(t, "x@good.test")
		for n, tt := range []struct {
			from         *address.Address
			header, want string
		}{
			{null, "", folder.Junk},
			{null, "From: <>\r\n", "INBOX"},
			{null, "From:\r\n", "INBOX"},
			{null, "From: MAILER-DAEMON\r\n", "INBOX"},
			{null, "From: Mail System <MAILER-DAEMON>\r\n", "INBOX"},
			{null, "From: Postmaster (Mail Delivery System)\r\n", "INBOX"},
			{null, "From: \"Mail Delivery, Subsystem\" <mailer-daemon>\r\n", "INBOX"},
			{&sender, "From: MAILER-DAEMON\r\n", folder.Junk},
			{null, "From: ceo <ceo>\r\n", folder.Junk},
			{null, "From: =?utf-8?q?ceo=40bank.test?= <MAILER-DAEMON>\r\n", folder.Junk},
			{null, "From: ceo\xef\xbc\xa0bank.test <MAILER-DAEMON>\r\n", folder.Junk},
			{null, "From: MAILER-DAEMON@localhost\r\n", folder.Junk},
			{null, "From: a@good.test\r\nFrom: b@good.test\r\n", folder.Junk},
		} {
			header := tt.header
			box := h.box(fmt.Sprintf("box%d", n), 10)
			l := h.Begin(tt.from, 0)
			if err := l.AddRecipient(t.Context(), addr(t, box.Address)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.ReceiveMessage(t.Context(), received, strings.NewReader(header+"Subject: x\r\n\r\nx\r\n")); err != nil {
				t.Errorf("%q: %v", header, err)
			}
			if in := h.places(box.ID); len(in) != 1 || in[0] != tt.want {
				t.Errorf("%q is in %v, not in %s", header, in, tt.want)
			}
		}
	})
}

// A body without an empty line before it stays whole, and all readers see it begin in the same
// place. The same holds with a byte order mark.
func TestMended(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.verified().Set("own.test", `TXT "v=spf1 ip4:192.0.2.7 -all"`)
		sender := addr(t, "x@own.test")
		for n, tt := range []struct{ mail, want, where string }{
			{"From: ann@own.test\r\nSubject: x\r\nHello\r\nBob\r\n\r\nbye\r\n", "From: ann@own.test\r\nSubject: x\r\n\r\nHello\r\nBob\r\n\r\nbye\r\n", "INBOX"},
			{"From: ann@own.test\r\nHello\r\n", "From: ann@own.test\r\n\r\nHello\r\n", "INBOX"},
			{"From: ann@own.test\r\nodd\r\nFrom: ceo@bank.test\r\n\r\nx\r\n", "From: ann@own.test\r\nodd\r\nFrom: ceo@bank.test\r\n\r\nx\r\n", "refused"},
			{"\xef\xbb\xbfFrom: ann@own.test\r\n\r\nx\r\n", "From: ann@own.test\r\n\r\nx\r\n", "INBOX"},
			{"\xef\xbb\xbf folded: x\r\nFrom: ann@own.test\r\n\r\nx\r\n", "", "refused"},
			{"From: ann@own.test\r\nHello\r\nnul \x00\r\n", "", "refused"},
		} {
			box := h.box(fmt.Sprintf("box%d", n), 10)
			l := h.Begin(&sender, 0)
			if err := l.AddRecipient(t.Context(), addr(t, box.Address)); err != nil {
				t.Fatal(err)
			}
			_, err := l.ReceiveMessage(t.Context(), received, strings.NewReader(tt.mail))
			if (err != nil) != (tt.where == "refused") {
				t.Errorf("%q: %v", tt.mail, err)
			}
			if err != nil {
				continue
			}
			if got := h.filed(box)[0].text; !strings.HasSuffix(got, "\r\n"+tt.want) {
				t.Errorf("%q is filed as %q", tt.mail, got)
			}
			if in := h.places(box.ID); in[0] != tt.where {
				t.Errorf("%q is in %v", tt.mail, in)
			}
		}
	})
}

// Settings of the recipient's domain and the operator, and recipients that must accept all mail.
func TestSoftened(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.verified().ServFail("_dmarc.dead.test")
		const refused = "refused"
		for n, tt := range []struct {
			operator, own domain.Enforcement
			author        string
			to            string
			want          string
		}{
			{domain.EnforceFully, domain.EnforceFully, "bank.test", "box", refused},
			{domain.EnforceJunk, domain.EnforceFully, "bank.test", "box", folder.Junk},
			{domain.EnforceFully, domain.EnforceJunk, "bank.test", "box", folder.Junk},
			{domain.EnforceJunk, domain.EnforceOff, "bank.test", "box", "INBOX"},
			{domain.EnforceOff, domain.EnforceFully, "bank.test", "box", "INBOX"},
			{domain.EnforceOff, domain.EnforceFully, "shop.test", "box", "INBOX"},
			{domain.EnforceFully, domain.EnforceJunk, "shop.test", "box", folder.Junk},
			{domain.EnforceFully, domain.EnforceFully, "dead.test", "box", refused},
			{domain.EnforceFully, domain.EnforceJunk, "dead.test", "box", "INBOX"},
			{domain.EnforceFully, domain.EnforceFully, "bank.test", "postmaster", folder.Junk},
			{domain.EnforceFully, domain.EnforceFully, "bank.test", "Abuse", folder.Junk},
			{domain.EnforceFully, domain.EnforceFully, "dead.test", "abuse", "INBOX"},
		} {
			h.MaxEnforcement = tt.operator
			if _, err := h.Domains.Update(t.Context(), h.account, h.domain, domain.Change{DMARCEnforcement: &tt.own}); err != nil && !fault.Is(err, fault.NotFound) {
				t.Fatal(err)
			}
			to := tt.to
			if to == "box" {
				to = h.box(fmt.Sprintf("box%d", n), 10).Address
			} else {
				to += "@demo.test"
			}
			before := len(h.places(0))
			err := h.from("a@good.test", "From: a@"+tt.author+"\r\n", to)
			if err != nil != (tt.want == refused) {
				t.Errorf("%d: %v", n, err)
			}
			if all := h.places(0)[before:]; tt.want != refused && (len(all) != 1 || all[0] != tt.want) {
				t.Errorf("%d: in %v, want %s", n, all, tt.want)
			}
		}
		// One recipient that must accept all mail is enough to accept the message.
		h.MaxEnforcement = domain.EnforceFully
		own := domain.EnforceFully
		if _, err := h.Domains.Update(t.Context(), h.account, h.domain, domain.Change{DMARCEnforcement: &own}); err != nil {
			t.Fatal(err)
		}
		one := h.box("one", 10)
		if err := h.from("a@good.test", "From: a@bank.test\r\n", "one@demo.test", "postmaster@demo.test"); err != nil {
			t.Fatal(err)
		}
		if in := h.places(one.ID); len(in) != 1 || in[0] != folder.Junk {
			t.Errorf("beside postmaster's it is in %v", in)
		}
		bad := domain.Enforcement("maybe")
		_, err := h.Domains.Update(t.Context(), h.account, h.domain, domain.Change{DMARCEnforcement: &bad})
		wantKind(t, err, fault.Invalid, "validation_failed")
	})
}

// Mail signed by a host like ours passes wherever it comes from. A sandbox without a network
// rejects nothing because the network is missing.
func TestSignedPasses(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		zone := h.verified()
		key, err := mailauth.GenerateKey(mailauth.Ed25519)
		if err != nil {
			t.Fatal(err)
		}
		record, err := mailauth.KeyRecord(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		zone.Publish("TXT", "s._domainkey.bank.test", record, nil)
		s := mailauth.Signer{Domain: "bank.test", Keys: []mailauth.Key{{Selector: "s", Private: key}}}
		body := "From: a@bank.test\r\nSubject: signed\r\n\r\n" + strings.Repeat("0123456789\r\n", 20_000)
		sig, err := s.Sign([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		bob := h.box("bob", 10)
		if _, err := h.send(string(sig)+body, "bob@demo.test"); err != nil {
			t.Fatal(err)
		}
		text := h.filed(bob)[0].text
		if !strings.Contains(text, ";\r\n\tdkim=pass header.d=bank.test header.s=s header.a=ed25519-sha256") || !strings.Contains(text, "dmarc=pass header.from=bank.test") || !strings.HasSuffix(text, body) {
			t.Errorf("it says\n%.1000s", text)
		}
		if _, err = h.send(string(sig)+body+"x", "bob@demo.test"); err == nil {
			t.Error("one that was changed is taken")
		}
		zone.ServFail("_dmarc.dead.test")
		if err := h.from("a@good.test", "From: a@dead.test\r\n", "bob@demo.test"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("without a policy: %v", err)
		}
		h.AcceptUnknownPolicy = true
		if err := h.from("a@good.test", "From: a@dead.test\r\n", "bob@demo.test"); err != nil {
			t.Errorf("without a policy, in the sandbox: %v", err)
		}
		var f *fault.Error
		if err := h.from("a@bank.test", "From: a@bank.test\r\n", "bob@demo.test"); !errors.As(err, &f) || f.Code != inbound.CodeDMARC {
			t.Errorf("in the sandbox: %v", err)
		}
	})
}

// Outside senders can't forge our results: neither with a field in our name, however it is written,
// nor by continuing the field that we prepend.
func TestResultsAreOurs(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.verified()
		const lie = "dmarc=pass header.from=bank.test\r\n"
		for n, header := range []string{
			"Authentication-Results: mail.host.test(ours)1; " + lie,
			"Authentication-Results: (really) mail.host.test (ours) 1; " + lie,
			"Authentication-Results: \"mail.host.test\"1; " + lie,
			"Authentication-Results: mail.(x)host.test; " + lie,
			"Authentication-Results: mail.host.test=; " + lie,
			"Authentication-Results: mail.host.test); " + lie,
			"Authentication-Results: mail.host.test\x01; " + lie,
			"Authentication-Results: Bücher.TEST; " + lie,
			"\t; " + lie,
			" \r\n\t; " + lie,
		} {
			if h.Host = "mail.host.test"; strings.Contains(header, "cher.TEST") {
				h.Host = "xn--bcher-kva.test"
			}
			box := h.box(fmt.Sprintf("box%d", n), 10)
			if err := h.from("a@good.test", header+"From: a@plain.test\r\n", box.Address); err != nil {
				if r, ours := inbound.ReplyFor(err); ours || r.Code != 554 {
					t.Errorf("%q: %v", header, err)
				}
				continue
			}
			if text := h.filed(box)[0].text; strings.Contains(text, lie) {
				t.Errorf("%q is believed:\n%s", header, text)
			}
		}
	})
}

// Mail that is only forwarded is deferred, like any other, while the policy of its author's domain
// is unknown.
func TestForwardWithoutPolicy(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.verified().ServFail("_dmarc.dead.test")
		if _, err := h.boxes.CreateAlias(t.Context(), h.account, "out@demo.test", []string{"far@away.example"}); err != nil {
			t.Fatal(err)
		}
		h.box("bob", 10)
		soft := domain.EnforceJunk
		if _, err := h.Domains.Update(t.Context(), h.account, h.domain, domain.Change{DMARCEnforcement: &soft}); err != nil {
			t.Fatal(err)
		}
		wantKind(t, h.from("a@good.test", "From: a@dead.test\r\n", "out@demo.test"), fault.Unavailable, inbound.CodeDMARCTempError)
		wantKind(t, h.from("a@good.test", "From: a@dead.test\r\n", "out@demo.test", "bob@demo.test"), fault.Unavailable, inbound.CodeDMARCTempError)
		wantKind(t, h.from("a@good.test", "From: a@bank.test\r\n", "out@demo.test"), fault.Denied, inbound.CodeNotForwarded)
	})
}
