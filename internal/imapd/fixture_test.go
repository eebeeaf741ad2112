// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

const (
	alice    = "alice@demo.test"
	password = "Correct-horse-7"
)

// fixture is an IMAP server on real sockets with a mailbox.
type fixture struct {
	testing.TB
	db        *db.DB
	server    *imapd.Server
	mailboxes *mailbox.Mailboxes
	folders   *folder.Folders
	blobs     *blob.Store
	files     string // the folder of the large messages
	box       mailbox.Mailbox
	plain     string // address of the STARTTLS port
	secure    string // address of the TLS port
	roots     *x509.CertPool
	log       *logs
	serving   sync.WaitGroup
}

// each runs f with a server over each engine.
func each(t *testing.T, f func(h *fixture)) {
	t.Helper()
	eachWith(t, func(*imapd.Options) {}, f)
}

func eachWith(t *testing.T, change func(o *imapd.Options), f func(h *fixture)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) { f(open(t, url, change)) })
}

func open(t testing.TB, url string, change func(o *imapd.Options)) *fixture {
	t.Helper()
	d, node := leasetest.Open(t, url)
	h := &fixture{TB: t, db: d, log: &logs{}, files: t.TempDir()}
	files, err := blob.NewDir(h.files)
	h.must(err)
	hub := &notify.Hub{}
	events := &event.Log{DB: d, Node: node, Hub: hub, Now: time.Now}
	h.blobs = &blob.Store{DB: d, Files: files, Now: time.Now}
	h.folders = newFolders(h, hub, events)
	sessions := imapd.NewSessions(d, hub, slog.New(h.log))
	h.openMailboxes(hub, events, node, sessions)
	h.box = h.newMailbox("alice")

	dir := t.TempDir()
	source, err := cert.NewSelfSigned(cert.SelfSignedOptions{Dir: dir, Host: "mail.host.test"})
	h.must(err)
	pem, err := os.ReadFile(cert.CAFile(dir))
	h.must(err)
	h.roots = x509.NewCertPool()
	h.roots.AppendCertsFromPEM(pem)

	o := imapd.Options{Host: "mail.host.test", TLS: source.TLSConfig(), Mailboxes: h.mailboxes, Folders: h.folders, Searcher: search.New(h.folders, nil),
		Blobs: h.blobs, ConnLimiter: &ratelimit.ConnLimiter{}, Sessions: sessions, Log: slog.New(h.log), Now: time.Now}
	change(&o)
	h.server = imapd.New(o)
	h.plain = h.serve(h.server.Serve)
	h.secure = h.serve(h.server.ServeTLS)
	t.Cleanup(func() {
		// Close sessions that a test has left open.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.server.Shutdown(ctx)
		h.serving.Wait()
	})
	return h
}

func (h *fixture) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) openMailboxes(hub *notify.Hub, events *event.Log, node *lease.Node, sessions *imapd.Sessions) {
	logins := ratelimit.NewLoginLimiter(h.db, []byte("a key"), netip.Addr.IsLoopback)
	h.mailboxes = mailbox.Open(mailbox.Options{
		DB: h.db, Node: node, Hub: hub, Events: events, Accounts: account.New(h.db, hub, time.Now), Hasher: credential.NewHasherWithCost(credentialtest.Cost),
		Logins: logins, Now: time.Now, Host: "mail.host.test",
		VerifiedName:  func(context.Context, db.ID, db.ID) (string, error) { return "demo.test", nil },
		CreateFolders: h.folders.Provision, OnRevoked: sessions.RecheckLogins,
	})
}

// newMailbox creates a mailbox under demo.test. The first call creates its account.
func (h *fixture) newMailbox(local string) mailbox.Mailbox {
	h.Helper()
	if h.box.ID == 0 {
		owner, err := h.mailboxes.Accounts.Create(h.Context(), "owner@example.com", "")
		h.must(err)
		h.box.Account, h.box.Domain = owner.ID, testkit.AddDomain(h, h.db, owner.ID, "demo.test", true)
	}
	pw := password
	box, _, err := h.mailboxes.Create(h.Context(), h.box.Account, mailbox.CreateParams{Domain: h.box.Domain, LocalPart: local, Password: &pw})
	h.must(err)
	return box
}

// serve runs a server function on a free port.
func (h *fixture) serve(listener func(net.Listener) error) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	h.must(err)
	h.serving.Go(func() {
		if err := listener(l); err != nil {
			h.Errorf("serving: %v", err)
		}
	})
	return l.Addr().String()
}

func (h *fixture) tlsConfig() *tls.Config {
	return &tls.Config{ServerName: "mail.host.test", RootCAs: h.roots}
}

// logs collects the errors that the server logs.
type logs struct {
	mu     sync.Mutex
	errors []string
}

func (l *logs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logs) WithGroup(string) slog.Handler                    { return l }
func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.errors = append(l.errors, text)
	return nil
}

func (l *logs) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors
}

func newFolders(h *fixture, hub *notify.Hub, events *event.Log) *folder.Folders {
	return folder.New(folder.Options{DB: h.db, Blobs: h.blobs, Events: events, Hub: hub, Now: time.Now, Log: slog.New(h.log)})
}
