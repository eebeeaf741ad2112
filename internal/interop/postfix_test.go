// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// postfix is a real outside Postfix, which accepts mail for outside.example and files it into
// folders.
type postfix struct {
	t    testing.TB
	dir  string
	port int
}

// outsideAddr is its address: a loopback address other than the service's.
const outsideAddr = "127.0.0.2"

func startPostfix(t testing.TB) *postfix { return startPostfixIn(t, nil) }

// startPostfixIn starts it with a command prefix and additional lines of main.cf.
func startPostfixIn(t testing.TB, front []string, more ...string) *postfix {
	t.Helper()
	needtest.Root(t)
	command := needtest.Program(t, "postfix")
	// Its daemons drop root privileges, and must still reach their files.
	dir, err := os.MkdirTemp("", "mailstead-postfix-")
	if err != nil {
		t.Fatal(err)
	}
	p := &postfix{t: t, dir: dir, port: dnstest.FreePort(t, outsideAddr)}
	for _, sub := range []string{"", "etc", "queue", "data", "mail"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, sub), 0o755); err != nil { //nolint:gosec // see above
			t.Fatal(err)
		}
	}
	nobody := lookUp(t, "nobody")
	for sub, owner := range map[string]*user.User{"data": lookUp(t, "postfix"), "mail": nobody} {
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(filepath.Join(dir, sub), uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	p.certificate()
	main := strings.NewReplacer("DIR", dir, "UID", nobody.Uid, "GID", nobody.Gid).Replace(`compatibility_level = 3.6
queue_directory = DIR/queue
data_directory = DIR/data
maillog_file = DIR/log
maillog_file_prefixes = DIR
myhostname = mx.outside.example
mydestination =
mynetworks = 192.0.2.1/32
inet_protocols = ipv4
smtpd_relay_restrictions = reject_unauth_destination
smtpd_tls_security_level = may
smtpd_tls_cert_file = DIR/etc/cert.pem
smtpd_tls_key_file = DIR/etc/key.pem
smtpd_tls_received_header = yes
smtputf8_enable = yes
alias_maps =
alias_database =
local_recipient_maps =
virtual_mailbox_domains = outside.example
virtual_mailbox_base = DIR/mail
virtual_mailbox_maps = inline:{ {ann@outside.example = ann/} {ben@outside.example = ben/} }
virtual_minimum_uid = 1
virtual_uid_maps = static:UID
virtual_gid_maps = static:GID
`)
	lines := slices.DeleteFunc(strings.Split(main, "\n"), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.ContainsFunc(more, func(other string) bool { return strings.HasPrefix(other, name+"=") })
	})
	p.file("etc/main.cf", strings.Join(append(lines, more...), "\n")+"\n")
	p.file("etc/master.cf", fmt.Sprintf(`%s:%d inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
showq unix n - n - - showq
postlog unix-dgram n - n - 1 postlogd
`, outsideAddr, p.port))
	start := append(slices.Clone(front), command, "-c", filepath.Join(dir, "etc"), "start-fg")
	cmd := exec.Command(start[0], start[1:]...) //nolint:gosec // what the test wants
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting Postfix: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // `postfix stop` reports that it stops
		close(ended)
	}()
	t.Cleanup(func() {
		if out, err := exec.Command(command, "-c", filepath.Join(dir, "etc"), "stop").CombinedOutput(); err != nil {
			t.Errorf("stopping Postfix: %v\n%s", err, out)
			_ = cmd.Process.Kill()
		}
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("Postfix:\n%s\n%s", log, text)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	servertest.Eventually(t, func() string {
		conn, err := net.Dial("tcp", p.addr())
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
	return p
}

func (p *postfix) addr() string { return fmt.Sprintf("%s:%d", outsideAddr, p.port) }

func lookUp(t testing.TB, name string) *user.User {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("Debian's package postfix is needed: %v", err)
	}
	return u
}

func (p *postfix) file(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // for its daemons
		p.t.Fatal(err)
	}
}

// certificate creates an untrusted certificate for mx.outside.example.
func (p *postfix) certificate() {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mx.outside.example"}, DNSNames: []string{"mx.outside.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	p.file("etc/cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	p.file("etc/key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

// received waits for the message with a subject in a person's folder.
func (p *postfix) received(name, subject string) string {
	p.t.Helper()
	var text string
	servertest.Eventually(p.t, func() string {
		paths, _ := filepath.Glob(filepath.Join(p.dir, "mail", name, "new", "*"))
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(b), "\nSubject: "+subject+"\n") {
				text = string(b)
				return ""
			}
		}
		return fmt.Sprintf("%s has no %q", name, subject)
	})
	return text
}

// signed verifies with python3-dkim that a received message has RSA and Ed25519 signatures that
// pass with the keys in records, by name.
func signed(t testing.TB, text string, records map[string]string) {
	t.Helper()
	keys, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(t)
	path := p.write("message", text)
	script, err := filepath.Abs("testdata/dkim_check.py")
	if err != nil {
		t.Fatal(err)
	}
	out := p.must("", needtest.Python(t, "dkim", "nacl"), script, path, p.write("keys", string(keys)))
	if !strings.Contains(out, "rsa-sha256 pass") || !strings.Contains(out, "ed25519-sha256 pass") {
		t.Errorf("python3-dkim says:\n%s\nabout:\n%s", out, text)
	}
}

// dkimRecords returns the keys that a domain must publish.
func dkimRecords(d domainAnswer) map[string]string {
	keys := map[string]string{}
	for _, r := range d.Records {
		if r.Kind == "DKIM" {
			keys[r.Name+"."] = r.Value
		}
	}
	return keys
}

type domainAnswer struct {
	ID, Name, Status string
	OwnershipStatus  string `json:"ownership_status"`
	Records          []struct {
		Kind, Type, Name, Value string
		Priority                *int
		Required                bool
		Status                  string
	}
}

type sent struct {
	ID, Status string
	Recipients []struct {
		Email, Status string
		Timeline      []struct {
			TLS, Transcript, Outcome string
			RemoteMTA                string `json:"remote_mta"`
		}
	}
}

// delivered waits until a message is delivered to all recipients, and returns it.
func delivered(t testing.TB, get func(path string) servertest.Response, id string) sent {
	t.Helper()
	var m sent
	servertest.Eventually(t, func() string {
		answer := get("/outbound/messages/" + id)
		if answer.Status != 200 {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
		m = sent{}
		answer.Decode(t, &m)
		if m.Status != "delivered" {
			return string(answer.Body)
		}
		return ""
	})
	return m
}

// customer calls the API of a service with a key.
type customer struct{ base, key string }

// selfSigned trusts any certificate, like that of a service under test.
var selfSigned = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}

func (c customer) call(t testing.TB, method, path string, body any) servertest.Response {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, c.base+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := selfSigned.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Response{Status: resp.StatusCode, Header: resp.Header, Body: answer}
}

// A message from the API to an outside domain reaches a real Postfix through --relay, signed.
func TestPostfixAsRelay(t *testing.T) {
	p := startPostfix(t)
	s := servertest.Start(t, func(c *server.Config) { c.Relay = "smtp://" + p.addr() })
	var d domainAnswer
	s.API("GET", "/domains/"+s.Dev.Domain.ID.String(), nil).Decode(t, &d)

	answer := s.API("POST", "/outbound/send", map[string]any{
		"from_email": "alice@demo.test", "from_name": "Alice Ö", "to": []string{"ann@outside.example", "Ben <ben@outside.example>"},
		"subject": "through the relay", "text": "Grüße\n.\n..\nFrom here\n", "html": "<p>Grüße</p>",
		"attachments": []map[string]string{{"filename": "ü.txt", "content": "aGVsbG8="}},
	})
	if answer.Status != 202 {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	var m sent
	answer.Decode(t, &m)
	for _, name := range []string{"ann", "ben"} {
		text := p.received(name, "through the relay")
		contains(t, text, "Return-Path: <b-", "Delivered-To: "+name+"@outside.example")
		signed(t, text, dkimRecords(d))
	}
	m = delivered(t, func(path string) servertest.Response { return s.API("GET", path, nil) }, m.ID)
	for _, r := range m.Recipients {
		if len(r.Timeline) != 1 || !strings.HasPrefix(r.Timeline[0].TLS, "TLS 1.") {
			t.Errorf("the timeline: %+v", r)
			continue
		}
		contains(t, r.Timeline[0].Transcript, "EHLO", "STARTTLS", "RCPT TO:<"+r.Email+">", "queued as")
	}

	// Submission takes the same route.
	by := newProgram(t)
	by.must("", "curl", "-sS", "--cacert", s.Dev.CACert, fmt.Sprintf("smtps://localhost:%d", s.Dev.Ports["submissions"]),
		"--user", "alice@demo.test:"+s.Dev.Mailboxes[0].Password, "--mail-from", "alice@demo.test", "--mail-rcpt", "ann@outside.example",
		"--upload-file", by.write("mail", message("alice@demo.test", "ann@outside.example", "submitted", "hello")))
	text := p.received("ann", "submitted")
	contains(t, text, "Return-Path: <alice@demo.test>")
	signed(t, text, dkimRecords(d))
}

// A domain published in the test's DNS is really verified, and mail from it finds Postfix by its
// MX.
func TestPostfixByMX(t *testing.T) {
	p := startPostfix(t)
	resolver, zone := dnstest.Start(t,
		"outside.example. MX 10 mx.outside.example.", "mx.outside.example. A "+outsideAddr,
		"mail.service.example. A 127.0.0.1", `spf.mail.service.example. TXT "v=spf1 ip4:127.0.0.1 -all"`)
	c := serve(t, resolver, p.port)

	answer := c.call(t, "POST", "/domains", map[string]any{"name": "Shop.Example"})
	if answer.Status != 201 {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	var d domainAnswer
	answer.Decode(t, &d)
	send := func() servertest.Response {
		return c.call(t, "POST", "/outbound/send", map[string]any{
			"from_email": "orders@shop.example", "to": []string{"ann@outside.example"}, "subject": "by MX", "text": "hello",
		})
	}
	if answer = send(); answer.Status != 403 {
		t.Errorf("before the domain was verified: %d %s", answer.Status, answer.Body)
	}
	publish(zone, d)
	if answer = c.call(t, "POST", "/domains/"+d.ID+"/verify", nil); answer.Status != 200 {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	answer = c.call(t, "POST", "/domains/"+d.ID+"/verify-dns", nil)
	answer.Decode(t, &d)
	if d.Status != "verified" || d.OwnershipStatus != "verified" {
		t.Fatalf("the domain is not verified: %s", answer.Body)
	}

	if answer = send(); answer.Status != 202 {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	var m sent
	answer.Decode(t, &m)
	text := p.received("ann", "by MX")
	// While the domain's MX and SPF are verified, bounces go there.
	contains(t, text, "Return-Path: <b-", "@shop.example>")
	signed(t, text, dkimRecords(d))
	m = delivered(t, func(path string) servertest.Response { return c.call(t, "GET", path, nil) }, m.ID)
	contains(t, m.Recipients[0].Timeline[0].Transcript, "EHLO mail.service.example", "STARTTLS", "queued as")
	if host := m.Recipients[0].Timeline[0].RemoteMTA; host != "mx.outside.example" {
		t.Errorf("it was delivered to %q", host)
	}
}

// publish adds a domain's required records to the zone.
func publish(zone *dnstest.Zone, d domainAnswer) {
	for _, r := range d.Records {
		zone.Publish(r.Type, r.Name, r.Value, r.Priority)
	}
}

// serve starts the service like `mailstead serve`, without the sandbox, and returns a customer of
// it.
func serve(t *testing.T, resolver string, smtpPort int) customer {
	t.Helper()
	c := server.DevConfig(t.TempDir())
	c.ResolverFor = []string{"127.in-addr.arpa=" + resolver} // where the test's hosts are
	c.Dev, c.Host, c.Resolver, c.SMTPPort, c.AllowPrivate = false, "mail.service.example", resolver, smtpPort, []string{"127.0.0.0/8"}
	c.PortBase = servertest.FreePortBase(t)
	running, err := server.Start(t.Context(), c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Shutdown(); err != nil {
			t.Errorf("shutting down: %v", err)
		}
	})
	a, err := running.Accounts.Create(t.Context(), "owner@example.org", "Owner")
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := running.Accounts.CreateKey(t.Context(), a.ID, account.KeyParams{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return customer{fmt.Sprintf("https://127.0.0.1:%d", c.PortBase+443), key}
}
