// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

const (
	// eximAddr is the address of the outside Exim.
	eximAddr = "127.0.0.3"
	// mxAddr is the address of our MX: none of this machine's interface addresses, which Postfix
	// would take for its own.
	mxAddr = "127.0.0.4"
)

// mxFixture is a service whose MX outside hosts find by DNS, and those hosts' DNS.
type mxFixture struct {
	customer
	t     *testing.T
	zone  *dnstest.Zone
	front []string // command prefix that restricts a program to our DNS
	key   mailauth.Key
	smtp  int // port of the MX
	bob   string
}

func startMX(t *testing.T) *mxFixture {
	t.Helper()
	needtest.Root(t)
	h := &mxFixture{t: t}
	// libc needs port 53, so use another loopback address.
	resolver, zone := dnstest.StartAt(t, fmt.Sprintf("127.%d.%d.%d:53", 53+rand.N(50), 1+rand.N(250), 1+rand.N(250)),
		"mail.service.example. A "+mxAddr, `spf.mail.service.example. TXT "v=spf1 ip4:127.0.0.4 -all"`,
		"outside.example. MX 10 mx.outside.example.", "mx.outside.example. A "+outsideAddr, "mx.outside.example. A "+eximAddr,
		"2.0.0.127.in-addr.arpa. PTR mx.outside.example.", "3.0.0.127.in-addr.arpa. PTR mx.outside.example.",
		`outside.example. TXT "v=spf1 a:mx.outside.example -all"`, `_dmarc.outside.example. TXT "v=DMARC1; p=reject"`,
		`_dmarc.bank.example. TXT "v=DMARC1; p=reject"`, `_dmarc.shopping.example. TXT "v=DMARC1; p=quarantine"`,
		`strict.example. TXT "v=spf1 -all"`)
	zone.ServFail("_dmarc.dead.example")
	h.zone, h.front = zone, namespace(t, strings.TrimSuffix(resolver, ":53"))
	private, err := mailauth.GenerateKey(mailauth.RSA)
	if err != nil {
		t.Fatal(err)
	}
	record, err := mailauth.KeyRecord(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	h.key = mailauth.Key{Selector: "s1", Private: private}
	zone.Publish("TXT", "s1._domainkey.outside.example", record, nil)
	h.start(resolver)
	return h
}

// start starts the service, with the verified domain shop.test.example and bob's
// mailbox.
func (h *mxFixture) start(resolver string) {
	h.t.Helper()
	c := server.DevConfig(h.t.TempDir())
	c.ResolverFor = []string{"127.in-addr.arpa=" + resolver} // where the test's hosts are
	c.Dev, c.Host, c.Resolver, c.AllowPrivate = false, "mail.service.example", resolver, []string{"127.0.0.0/8"}
	c.Bind, c.PortBase = mxAddr, servertest.FreePortBase(h.t)
	running, err := server.Start(h.t.Context(), c, slog.New(slog.NewTextHandler(h.t.Output(), nil)))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := running.Shutdown(); err != nil {
			h.t.Errorf("shutting down: %v", err)
		}
	})
	a, err := running.Accounts.Create(h.t.Context(), "owner@example.org", "Owner")
	if err != nil {
		h.t.Fatal(err)
	}
	_, key, err := running.Accounts.CreateKey(h.t.Context(), a.ID, account.KeyParams{Name: "test"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.customer, h.smtp = customer{fmt.Sprintf("https://%s:%d", mxAddr, c.PortBase+443), key}, c.PortBase+25
	var d domainAnswer
	h.must("POST", "/domains", map[string]any{"name": "shop.example"}, 201).Decode(h.t, &d)
	publish(h.zone, d)
	h.must("POST", "/domains/"+d.ID+"/verify", nil, 200)
	h.must("POST", "/domains/"+d.ID+"/verify-dns", nil, 200)
	var box struct{ ID string }
	h.must("POST", "/mailboxes", map[string]any{"domain_id": d.ID, "local_part": "bob"}, 201).Decode(h.t, &box)
	h.bob = box.ID
}

func (h *mxFixture) must(method, path string, body any, want int) servertest.Response {
	h.t.Helper()
	a := h.call(h.t, method, path, body)
	if a.Status != want {
		h.t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
	return a
}

// namespace returns a command prefix whose program sees another resolv.conf, and the user that
// Debian's Exim was built for.
func namespace(t *testing.T, nameserver string) []string {
	t.Helper()
	dir := t.TempDir()
	with := func(name, line string) {
		text, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "Debian-exim:") {
			text = append(text, line...)
		}
		write(t, dir+"/"+name, string(text))
	}
	with("passwd", "Debian-exim:x:65530:65530::/:/usr/sbin/nologin\n")
	with("group", "Debian-exim:x:65530:\n")
	write(t, dir+"/resolv.conf", "nameserver "+nameserver+"\n")
	return []string{"unshare", "--mount", "sh", "-ec", `for f in passwd group resolv.conf; do mount --bind "$0/$f" "$(readlink -f "/etc/$f")"; done; exec "$@"`, dir}
}

// sender is an outside mail server that sends mail to our MX.
type sender interface {
	// send submits a message from a sender of its own.
	send(t *testing.T, from, to, text string)
	// log returns its log so far.
	log() string
	// queued returns why messages wait.
	queued() string
	// returned returns the bounces to ann@outside.example.
	returned() string
}

// sendingPostfix is a Postfix that signs nothing.
type sendingPostfix struct{ *postfix }

func (h *mxFixture) startPostfix(t *testing.T) sender {
	return &sendingPostfix{startPostfixIn(t, h.front, "smtpd_tls_security_level = none", "mynetworks = 127.0.0.0/8",
		"smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination",
		"smtp_bind_address = "+outsideAddr, fmt.Sprintf("smtp_tcp_port = %d", h.smtp), "smtp_tls_security_level = may", "smtp_tls_loglevel = 1",
		"smtp_dns_support_level = enabled", "smtp_host_lookup = dns")}
}

func (p *sendingPostfix) send(t *testing.T, from, to, text string) {
	t.Helper()
	if err := smtp.SendMail(p.addr(), nil, from, []string{to}, []byte(strings.ReplaceAll(text, "\n", "\r\n"))); err != nil {
		t.Fatalf("handing it to Postfix: %v", err)
	}
}

func (p *sendingPostfix) log() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text)
}

func (p *sendingPostfix) queued() string {
	out, err := exec.Command(needtest.Program(p.t, "postqueue"), "-c", filepath.Join(p.dir, "etc"), "-p").CombinedOutput()
	if err != nil {
		p.t.Errorf("postqueue: %v", err)
	}
	return string(out)
}

func (p *sendingPostfix) returned() string {
	all := ""
	paths, _ := filepath.Glob(filepath.Join(p.dir, "mail/ann/new/*"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		all += string(text)
	}
	return all
}

// exim is a real Exim, which signs what it sends.
type exim struct {
	t       *testing.T
	front   []string
	program string
	dir     string
}

func (h *mxFixture) startExim(t *testing.T) sender {
	t.Helper()
	out, err := exec.Command("../../script/exim", "--find").Output()
	if err != nil {
		needtest.Missing(t, "Exim is missing: `make test-packages` installs it")
	}
	e := &exim{t: t, front: h.front, dir: openDir(t)}
	// When it restarts itself, it has dropped root privileges.
	program, err := os.ReadFile(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	e.program = e.dir + "/exim"
	if err := os.WriteFile(e.program, program, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(h.key.Private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, e.dir+"/key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	write(t, e.dir+"/conf", strings.NewReplacer("DIR", e.dir, "PROGRAM", e.program, "PORT", fmt.Sprint(h.smtp), "ADDR", eximAddr).Replace(`
primary_hostname = mx.outside.example
exim_path = PROGRAM
spool_directory = DIR/spool
log_file_path = DIR/log-%s
log_selector = +pipelining
exim_user = root
exim_group = root
never_users =
keep_environment =
bounce_return_body = false
untrusted_set_sender = *
begin routers
own:
  driver = accept
  domains = outside.example
  transport = folder
all:
  driver = dnslookup
  self = send
  transport = remote
  no_more
begin transports
folder:
  driver = appendfile
  file = DIR/mail/box
  user = nobody
remote:
  driver = smtp
  port = PORT
  interface = ADDR
  user = nobody
  dkim_domain = ${if eq{${domain:$h_From:}}{outside.example}{outside.example}{}}
  dkim_selector = s1
  dkim_private_key = DIR/key.pem
begin retry
* * F,1h,10m
`))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Exim:\n%s", e.log())
		}
	})
	return e
}

// openDir returns a directory that programs without root privileges can reach, with a subdirectory
// that they may write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mailstead-exim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/mail", 0o777), os.Chmod(dir+"/mail", 0o777)); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	return dir
}

func (e *exim) run(stdin string, args ...string) string {
	e.t.Helper()
	cmd := append(append([]string{}, e.front...), append([]string{e.program, "-C", e.dir + "/conf"}, args...)...)
	return newProgram(e.t).must(stdin, cmd[0], cmd[1:]...)
}

func (e *exim) send(_ *testing.T, from, to, text string) { e.run(text, "-odf", "-oi", "-f", from, to) }

func (e *exim) log() string {
	text, _ := os.ReadFile(e.dir + "/log-main")
	return string(text)
}

func (e *exim) queued() string { return e.run("", "-bp") + e.log() }

func (e *exim) returned() string {
	text, _ := os.ReadFile(e.dir + "/mail/box")
	return string(text)
}

// The MX verifies mail from a real Postfix and a real Exim, and its responses reach their senders.
func TestPostfixAndEximDeliver(t *testing.T) {
	h := startMX(t)
	for name, start := range map[string]func(*testing.T) sender{"Postfix": h.startPostfix, "Exim": h.startExim} {
		t.Run(name, func(t *testing.T) { h.brings(t, name, start(t)) })
	}
}

// awkward returns a body that is hard to transport.
func awkward() string {
	return strings.Repeat("Zeile mit Umlauten: äöü, und einem Punkt\n.\n..\nFrom here\n \n\ttab  and blanks \n", 3000) + strings.Repeat("x", 990) + "\n\n\n"
}

func (h *mxFixture) brings(t *testing.T, name string, s sender) {
	ip := map[string]string{"Postfix": outsideAddr, "Exim": eximAddr}[name]
	write := func(from, subject, body string) string {
		text := fmt.Sprintf("From: %s\nTo: bob@shop.example\nSubject: %s %s\nDate: Thu, 01 Jan 2026 12:00:00 +0000\nMessage-ID: <%s-%s@outside.example>\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n%s",
			from, name, subject, name, subject, body)
		if name == "Postfix" && strings.HasSuffix(from, "@outside.example") {
			sig, err := (&mailauth.Signer{Domain: "outside.example", Keys: []mailauth.Key{h.key}}).Sign([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			text = strings.ReplaceAll(string(sig), "\r\n", "\n") + text
		}
		return text
	}
	const ann = "ann@outside.example"
	for _, tt := range []struct {
		subject, from, sender, folder string
		results                       []string
	}{
		{"signed", ann, ann, "INBOX", []string{"spf=pass smtp.mailfrom=outside.example;", "dkim=pass header.d=outside.example header.s=s1", "dmarc=pass header.from=outside.example"}},
		{"by-signature", ann, "x@strict.example", "INBOX", []string{"spf=fail smtp.mailfrom=strict.example;", "dkim=pass header.d=outside.example", "dmarc=pass header.from=outside.example"}},
		{"quarantined", "offer@shopping.example", ann, "Junk", []string{"spf=pass", "dkim=none", "dmarc=fail (p=quarantine) header.from=shopping.example"}},
		{"unknown", "somebody@plain.example", ann, "INBOX", []string{"spf=pass", "dkim=none", "dmarc=none header.from=plain.example"}},
	} {
		s.send(t, tt.sender, "bob@shop.example", write(tt.from, tt.subject, awkward()))
		text, folder := h.filed(t, name+" "+tt.subject)
		if folder != tt.folder {
			t.Errorf("%s is in %s", tt.subject, folder)
		}
		head, body, _ := strings.Cut(text, "\r\n\r\n")
		contains(t, head, "Return-Path: <"+tt.sender+">", "Delivered-To: bob@shop.example", "Received: from mx.outside.example (mx.outside.example ["+ip+"]", " (TLS 1.",
			"Authentication-Results: mail.service.example;", "iprev=pass policy.iprev="+ip+" (mx.outside.example);")
		contains(t, strings.Join(strings.Fields(head), " "), tt.results...)
		if body != strings.ReplaceAll(awkward(), "\n", "\r\n") {
			t.Errorf("%s: the body has changed: %d octets", tt.subject, len(body))
		}
	}
	s.send(t, ann, "bob@shop.example", write("ceo@bank.example", "refused", "x\n"))
	s.send(t, ann, "nobody@shop.example", write(ann, "nobody", "x\n"))
	s.send(t, ann, "bob@shop.example", write("x@dead.example", "later", "x\n"))
	for _, want := range []struct {
		what string
		have func() string
		in   string
	}{
		{"the report", s.returned, "550 5.7.1 The DMARC policy of bank.example refuses this message"},
		{"the report", s.returned, "550 5.1.1 "},
		{"the queue", s.queued, "451 4.7.0 The DMARC policy of dead.example could not be looked up"},
		{"the log", s.log, map[string]string{"Postfix": "TLS connection established to mail.service.example[127.0.0.4]", "Exim": "X=TLS1."}[name]},
	} {
		servertest.Eventually(t, func() string {
			// Reports are folded.
			if said := strings.Join(strings.Fields(want.have()), " "); !strings.Contains(said, want.in) {
				return fmt.Sprintf("%s does not say %q:\n%s", want.what, want.in, said)
			}
			return ""
		})
	}
	if name == "Exim" { // L: pipelined, K: BDAT
		contains(t, s.log(), " L ", " K ", "250 ")
	}
	if text, _ := h.find(t, name+" refused"); text != "" {
		t.Errorf("what was refused is filed:\n%s", text)
	}
}

// filed waits for the message with a subject in bob's mailbox.
func (h *mxFixture) filed(t *testing.T, subject string) (text, folder string) {
	t.Helper()
	servertest.Eventually(t, func() string {
		if text, folder = h.find(t, subject); text == "" {
			return "bob has no " + subject
		}
		return ""
	})
	return text, folder
}

func (h *mxFixture) find(t *testing.T, subject string) (text, folder string) {
	t.Helper()
	var list struct {
		Data []struct {
			ID, Subject string
			Folders     []struct{ Folder string }
		}
	}
	path := "/mailboxes/" + h.bob + "/messages"
	h.call(t, "GET", path+"?limit=100", nil).Decode(t, &list)
	for _, m := range list.Data {
		if m.Subject == subject {
			return string(h.call(t, "GET", path+"/"+m.ID+"/raw", nil).Body), m.Folders[0].Folder
		}
	}
	return "", ""
}
