// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// extensions lists the extensions that hosts lack in TestHostsLackExtensions, in each combination.
var extensions = []string{"8BITMIME", "SMTPUTF8", "DSN", "SIZE 60000", "PIPELINING", "CHUNKING", "ENHANCEDSTATUSCODES"}

// hostWith is a remote mail host with some of the extensions. It accepts everything, and records
// what the service must not send to it.
type hostWith struct {
	n    int // number in its name h<n>.example.net; one bit for each extension
	mu   *sync.Mutex
	got  []tookMail
	bad  []string
	open net.Listener
}

type tookMail struct{ from, to, data string }

func (h *hostWith) name() string { return fmt.Sprintf("h%d.example.net", h.n) }

func (h *hostWith) offers(extension string) bool {
	at := slices.IndexFunc(extensions, func(e string) bool { return strings.HasPrefix(e, extension) })
	return h.n&(1<<at) != 0
}

// hostsWith starts a host for each combination of extensions, all on one port.
func hostsWith(t *testing.T) (all []*hostWith, port int) {
	t.Helper()
	var wg sync.WaitGroup
	mu := &sync.Mutex{}
next:
	for range 50 {
		all, port = nil, 0
		for n := range 1 << len(extensions) {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.2.%d:%d", n+1, port))
			if err != nil {
				for _, h := range all {
					_ = h.open.Close()
				}
				continue next
			}
			port = l.Addr().(*net.TCPAddr).Port
			all = append(all, &hostWith{n: n, mu: mu, open: l})
		}
		break
	}
	if len(all) == 0 {
		t.Fatal("no port is free at all addresses")
	}
	for _, h := range all {
		wg.Go(func() {
			for {
				nc, err := h.open.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer nc.Close() //nolint:errcheck // it is only read from
					h.serve(nc)
				})
			}
		})
	}
	t.Cleanup(func() { // runs once the service has ended, and its connections with it
		for _, h := range all {
			_ = h.open.Close()
		}
		wg.Wait()
	})
	return all, port
}

func (h *hostWith) serve(nc net.Conn) {
	in := bufio.NewReaderSize(nc, 64<<10)
	say := func(code int, enhanced, text string) {
		if !h.offers("ENHANCEDSTATUSCODES") {
			enhanced = ""
		}
		_, _ = fmt.Fprintf(nc, "%d %s%s\r\n", code, enhanced, text)
	}
	say(220, "", h.name())
	var mail tookMail
	var utf8 bool
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if in.Buffered() > 0 && !h.offers("PIPELINING") {
			h.wrong("commands in a row at %q", line)
		}
		verb, arg, _ := strings.Cut(line, " ")
		switch verb {
		case "EHLO":
			_, _ = fmt.Fprintf(nc, "250-%s\r\n", h.name())
			for at, e := range extensions {
				if h.n&(1<<at) != 0 {
					_, _ = fmt.Fprintf(nc, "250-%s\r\n", e)
				}
			}
			_, _ = io.WriteString(nc, "250 HELP\r\n")
		case "MAIL":
			utf8 = strings.Contains(arg, " SMTPUTF8")
			mail = tookMail{from: h.address(arg, "FROM:", utf8)}
			say(250, "2.1.0 ", "ok")
		case "RCPT":
			mail.to = h.address(arg, "TO:", utf8)
			say(250, "2.1.5 ", "ok")
		case "DATA":
			say(354, "", "go ahead")
			if mail.data, err = data(in); err != nil {
				return
			}
			h.took(mail, utf8)
			say(250, "2.0.0 ", "taken")
		case "QUIT":
			say(221, "2.0.0 ", "bye")
			return
		default:
			say(250, "2.0.0 ", "ok")
		}
	}
}

func data(in *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == ".\r\n" {
			return b.String(), err
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
}

// parameters maps each parameter to the extension that it requires.
var parameters = map[string]string{
	"BODY": "8BITMIME", "SMTPUTF8": "SMTPUTF8", "SIZE": "SIZE", "RET": "DSN", "ENVID": "DSN", "NOTIFY": "DSN", "ORCPT": "DSN",
}

// address parses the argument of MAIL or RCPT.
func (h *hostWith) address(arg, prefix string, utf8 bool) string {
	words := strings.Fields(strings.TrimPrefix(arg, prefix))
	for _, p := range words[1:] {
		name, _, _ := strings.Cut(p, "=")
		if e := parameters[name]; e == "" || !h.offers(e) {
			h.wrong("the parameter %s", p)
		}
	}
	if !utf8 && strings.ContainsFunc(words[0], notASCII) {
		h.wrong("the address %s without SMTPUTF8", words[0])
	}
	return strings.Trim(words[0], "<>")
}

func notASCII(c rune) bool { return c >= 0x80 }

func (h *hostWith) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad = append(h.bad, fmt.Sprintf(format, args...))
}

// took stores a message, after a check that the host supports its form.
func (h *hostWith) took(m tookMail, utf8 bool) {
	index := message.Scan([]byte(m.data))
	header, _, _ := strings.Cut(m.data, "\r\n\r\n")
	switch {
	case index.Has(message.EightBit|message.HasNUL) && !h.offers("8BITMIME"):
		h.wrong("8 bits in\n%s", m.data)
	case strings.ContainsFunc(header, notASCII) && !utf8:
		h.wrong("8 bits in the header\n%s", header)
	case len(m.data) > 60000 && h.offers("SIZE"):
		h.wrong("%d octets", len(m.data))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, m)
}

// Each host gets every kind of message in a form that it supports: local and forwarded ones, with
// and without a relevant signature. If there is no supported form, the sender gets a report in a
// form that the sender's host supports. No message is lost.
func TestHostsLackExtensions(t *testing.T) {
	needtest.Full(t, "every missing SMTP extension")
	dbtest.EachURL(t, func(t *testing.T, url string) {
		hosts, port := hostsWith(t)
		o := newOutsider(t, servertest.Database(url), func(c *server.Config) {
			c.Relay, c.SMTPPort, c.AllowPrivate = "smtp://127.0.0.1:1", port, []string{"127.0.0.0/8"}
		})
		o.s.SendByMX()
		(&lacking{t, o, clientOf(t, o.s), hosts}).test()
	})
}

type lacking struct {
	t     *testing.T
	o     *outsider
	c     *client.Client
	hosts []*hostWith
}

// kinds holds the messages, without the fields From and Subject.
var kinds = map[string]string{
	"ascii":  "\r\nHi\r\n",
	"body":   "\r\nGrüße, Bob\r\n",
	"nested": nestedKind("text/plain; charset=utf-8", "Grüße, Bob"),
	"within": nestedKind("message/rfc822", "Subject: Maße\r\n\r\nGrüße, Bob"),
	"utf8":   "\r\nHi\r\n", // to an address that is not ASCII
	"long":   "\r\n" + strings.Repeat("All work and no play. ", 60) + "\r\n",
	"large":  "\r\n" + strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 1700),
}

func nestedKind(contentType, text string) string {
	return "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n" +
		"--y\r\nContent-Type: " + contentType + "\r\n\r\n" + text + "\r\n--y--\r\n--x--\r\n"
}

// bounces returns the code with which a message to a host bounces; "" if the host accepts it.
func bounces(h *hostWith, kind, source string) string {
	switch {
	case kind == "utf8" && !h.offers("SMTPUTF8"):
		return "5.6.7"
	case kind == "large" && h.offers("SIZE"):
		return "5.3.4"
	case slices.Contains([]string{"body", "nested", "within"}, kind) && source == "signed" && !h.offers("8BITMIME"):
		return "5.6.3"
	}
	return ""
}

var (
	openDeliveries = db.SQL(`SELECT COUNT(*) FROM delivery WHERE state IN ('scheduled', 'queued', 'deferred')`)
	openNotices    = db.SQL(`SELECT COUNT(*) FROM notice`)
)

func (l *lacking) test() {
	l.o.zone.Add(`plain.example.net. TXT "v=spf1 ip4:127.0.0.1 -all"`, "plain.example.net. A 127.0.2.1")
	for _, h := range l.hosts {
		l.o.zone.Add(fmt.Sprintf(`%s. TXT "v=spf1 ip4:127.0.0.1 -all"`, h.name()), fmt.Sprintf("%s. A 127.0.2.%d", h.name(), h.n+1))
		for alias, to := range map[string]string{"out": "to", "utf": "tö"} {
			if _, err := l.c.CreateAlias(l.t.Context(), fmt.Sprintf("%s%d@demo.test", alias, h.n), to+"@"+h.name()); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	for kind, text := range kinds {
		l.own(kind, text)
		l.forward(kind, "From: ann@plain.example.net\r\nSubject: "+kind+" unsigned\r\n"+text)
		signed := "From: ann@bank.com\r\nSubject: " + kind + " signed\r\n" + text
		signature, err := l.o.sign.Sign([]byte(signed))
		if err != nil {
			l.t.Fatal(err)
		}
		l.forward(kind, string(signature)+signed)
	}
	// Old programs write raw UTF-8 in headers, without declaring it.
	if err := plainly(l.o.s, "ann@plain.example.net", "From: ann@plain.example.net\r\nSubject: raw unsigned\r\nX-Comment: Grüße\r\n\r\nHi\r\n", "out0@demo.test"); err != nil {
		l.t.Fatal(err)
	}
	// A message that a host does not support is reported to senders at each host.
	for _, h := range l.hosts {
		signed := "From: ann@bank.com\r\nSubject: back\r\n" + kinds["body"]
		signature, err := l.o.sign.Sign([]byte(signed))
		if err != nil {
			l.t.Fatal(err)
		}
		if err := mx(l.t, l.o.s, "ann@"+h.name(), string(signature)+signed, "out0@demo.test"); err != nil {
			l.t.Fatal(err)
		}
	}
	servertest.Eventually(l.t, func() string {
		var deliveries, notices int
		if err := errors.Join(l.o.s.DB.One(l.t.Context(), openNotices.With(), &notices), l.o.s.DB.One(l.t.Context(), openDeliveries.With(), &deliveries)); err != nil {
			l.t.Fatal(err)
		}
		if deliveries+notices > 0 {
			return fmt.Sprintf("%d deliveries and %d notices are open", deliveries, notices)
		}
		return ""
	})
	l.check()
}

// own sends a message to all hosts, as a mailbox and by the API.
func (l *lacking) own(kind, text string) {
	l.t.Helper()
	local := "to"
	if kind == "utf8" {
		local = "tö"
	}
	for some := range slices.Chunk(l.hosts, 50) {
		to := make([]string, len(some))
		for n, h := range some {
			to[n] = local + "@" + h.name()
		}
		submitted(l.t, l.o.s, 0, "From: alice@demo.test\r\nSubject: "+kind+" own\r\n"+text, to...)
		if kind == "nested" || kind == "within" {
			continue
		}
		if _, err := l.c.Send(l.t.Context(), &client.Send{FromEmail: "bob@demo.test", To: to, Subject: kind + " api", Text: strings.TrimPrefix(text, "\r\n")}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// forward sends a message to the aliases that forward to all hosts.
func (l *lacking) forward(kind, text string) {
	l.t.Helper()
	alias := "out"
	if kind == "utf8" {
		alias = "utf"
	}
	for some := range slices.Chunk(l.hosts, 64) {
		to := make([]string, len(some))
		for n, h := range some {
			to[n] = fmt.Sprintf("%s%d@demo.test", alias, h.n)
		}
		if err := mx(l.t, l.o.s, "ann@plain.example.net", text, to...); err != nil {
			l.t.Fatal(err)
		}
	}
}

var textsOf = db.SQL(`SELECT blob FROM message WHERE mailbox = $1 ORDER BY id`)

// told returns the reports in alice's mailbox.
func (l *lacking) told() (all []string) {
	ids, err := db.All(l.t.Context(), l.o.s.DB, textsOf.With(l.o.s.Dev.Mailboxes[0].ID), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		l.t.Fatal(err)
	}
	for _, id := range ids {
		b, err := l.o.s.Blobs.Load(l.t.Context(), id)
		if err != nil {
			l.t.Fatal(err)
		}
		r, err := b.Open(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		text, err := io.ReadAll(r.All())
		_ = r.Close() // only read
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

var bouncedOf = db.SQL(`SELECT m.subject, d.recipient, d.enhanced FROM delivery AS d JOIN outbound_message AS m ON m.id = d.message
	WHERE d.state = 'bounced' AND m.subject LIKE '% api'`)

// check compares the outcomes of all messages with the expected ones.
func (l *lacking) check() {
	became := map[string]int{} // number of each outcome
	for _, h := range l.hosts {
		for _, bad := range h.bad {
			l.t.Errorf("%s, with %b, got %.2000s", h.name(), h.n, bad)
		}
		for _, m := range h.got {
			l.gotMail(h, m, became)
		}
	}
	for _, text := range l.told() {
		l.report("own", text, became)
	}
	err := l.o.s.DB.Each(l.t.Context(), bouncedOf.With(), func(r db.Row) error {
		var subject, to, code string
		err := r.Scan(&subject, &to, &code)
		became[subject+" "+to+" "+code]++
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, h := range l.hosts {
		for kind := range kinds {
			for _, source := range []string{"own", "api", "unsigned", "signed"} {
				if source == "api" && (kind == "nested" || kind == "within") {
					continue
				}
				local := "to@"
				if kind == "utf8" {
					local = "tö@"
				}
				want := strings.TrimSpace(kind + " " + source + " " + local + h.name() + " " + bounces(h, kind, source))
				if became[want] != 1 {
					l.t.Errorf("with %b: %q, %d times", h.n, want, became[want])
				}
				delete(became, want)
			}
		}
		if want := "back ann@" + h.name(); became[want] != 1 {
			l.t.Errorf("with %b: %q, %d times", h.n, want, became[want])
		} else {
			delete(became, want)
		}
	}
	if raw := "raw unsigned to@h0.example.net"; became[raw] == 1 {
		delete(became, raw)
	} else {
		l.t.Errorf("%q, %d times", raw, became[raw])
	}
	for what := range became {
		l.t.Errorf("nobody knows of %q", what)
	}
}

// gotMail records a message or a report that a host received.
func (l *lacking) gotMail(h *hostWith, m tookMail, became map[string]int) {
	subject := message.Header(m.data).Decoded("Subject")
	kind, source, _ := strings.Cut(subject, " ")
	if m.from == "" && strings.HasSuffix(subject, ": back") {
		became["back "+m.to]++
		return
	}
	if m.from == "" {
		_, source, _ = strings.Cut(source, " ")
		l.report(source, m.data, became)
		return
	}
	became[subject+" "+m.to]++
	text := kinds[kind]
	if source == "signed" {
		if !strings.HasSuffix(m.data, text) {
			l.t.Errorf("%s has changed what was signed:\n%.2000s", h.name(), m.data)
		}
		return
	}
	if strings.Contains(text, "Grüße") && !strings.Contains(decoded(l.t, m.data), "Grüße") {
		l.t.Errorf("%s has, with %b\n%s", h.name(), h.n, m.data)
	}
	if index := message.Scan([]byte(m.data)); index.Has(message.LongLines) {
		l.t.Errorf("%s has long lines", h.name())
	}
}

// report records the subject of a report, and checks that it is about the right host.
func (l *lacking) report(source, text string, became map[string]int) {
	_, subject, _ := strings.Cut(message.Header(text).Decoded("Subject"), ": ")
	for one := range strings.SplitSeq(text, "\r\nFinal-Recipient: ") {
		address, rest, ok := strings.Cut(one, "\r\nAction: failed\r\nStatus: ")
		if !ok {
			continue
		}
		_, address, _ = strings.Cut(strings.ReplaceAll(address, `\x{F6}`, "ö"), "; ")
		status, rest, _ := strings.Cut(rest, "\r\n")
		_, host, _ := strings.Cut(address, "@")
		said := strings.Join(strings.Fields(rest), " ")
		if strings.Contains(one, "Remote-MTA") || !strings.HasPrefix(said, "Diagnostic-Code: X-Mailstead; ") || !strings.Contains(said, " "+host+" ") {
			l.t.Errorf("the report about %s says %.300s", address, rest)
		}
		became[subject+" "+address+" "+status]++
	}
	if !strings.HasSuffix(subject, source) {
		l.t.Errorf("a report about %q", subject)
	}
	if plain := decoded(l.t, text); !strings.Contains(plain, "next mail host on its way") || strings.Contains(plain, "recipient's server") {
		l.t.Errorf("the report says\n%.2000s", plain)
	}
}

// decoded returns the texts of a message.
func decoded(t *testing.T, mail string) string {
	t.Helper()
	index := message.Scan([]byte(mail))
	var b strings.Builder
	for i := range index.Parts {
		if p := &index.Parts[i]; p.Kind == message.Leaf {
			if _, err := io.Copy(&b, p.Decode(io.NewSectionReader(strings.NewReader(mail), p.Body.Start, p.Body.Len))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
