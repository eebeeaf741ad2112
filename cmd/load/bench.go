// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/cmd/load/names"
)

// Data of every system.
const (
	mailboxCount        = 100 // for MX and submission; the IMAP work has one more per round
	externalDomainCount = 100 // domains that the sink answers for
)

var (
	apiConns      = []int{1, 16, 64}
	sessionCounts = []int{1, 10, 50}
)

// bench is a run of the program.
type bench struct {
	options           *options
	dir               string
	names             *names.Server
	certFile, keyFile string
	systems           []*system
	report            *report
	machine           string
	failed            error
	messages          [][]byte
	signer            *signer
	sinkTLS           *tls.Config // nil: the sink offers no STARTTLS
}

func openBench(o *options) (b *bench, err error) {
	b = &bench{options: o, report: newReport()}
	if b.dir, err = os.MkdirTemp(o.dir, "mailstead-bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil { //nolint:gosec // the peers' own users pass through
		return nil, err
	}
	if b.certFile, b.keyFile, err = writePeerCertificate(b.dir); err != nil {
		return nil, err
	}
	if o.sinkTLS {
		pair, err := tls.LoadX509KeyPair(b.certFile, b.keyFile)
		if err != nil {
			return nil, err
		}
		b.sinkTLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	if b.signer, err = newSigner(); err != nil {
		return nil, err
	}
	if b.names, err = names.Listen(); err != nil {
		return nil, err
	}
	b.machine = describeMachine(b.dir)
	b.messages = folderMessages(o.imapMessages, 8<<10)
	return b, errors.Join(
		b.names.Add(serviceHost, "A", "127.0.0.1"),
		b.names.Add("spf."+serviceHost, "TXT", "v=spf1 ip4:127.0.0.0/8 -all"),
		// The sender of mail to the MX: a correspondent with valid SPF, DKIM and DMARC.
		b.names.Add("bench-sink.net", "MX", "10 mx.bench-sink.net."),
		b.names.Add("bench-sink.net", "TXT", "v=spf1 ip4:127.0.0.0/8 -all"),
		b.names.Add("_dmarc.bench-sink.net", "TXT", "v=DMARC1; p=reject"),
		b.names.Add("s._domainkey.bench-sink.net", "TXT", b.signer.Record),
	)
}

// benchmark is a part of the run, done on each system in turn.
type benchmark struct {
	name     string
	supports func(*system) bool
	run      func(*bench, context.Context, *system, int) error
}

func benchmarks(o *options) []benchmark {
	return []benchmark{
		{"api", func(s *system) bool { return s.http != "" }, (*bench).apiSends},
		{"submission", func(s *system) bool { return s.submission != "" }, (*bench).submissions},
		{"mx", func(s *system) bool { return s.mx != "" }, (*bench).inbound},
		{"mx-loss", func(s *system) bool { return s.mx != "" && s.http != "" }, (*bench).packetLoss},
		{"mx-silent", func(s *system) bool { return s.mx != "" && s.http != "" }, (*bench).silentDNS},
		{"relay", func(s *system) bool { return s.sink != nil }, (*bench).relay},
		{"imap", func(s *system) bool { return s.imap != "" }, (*bench).imapWork},
		{"size", func(s *system) bool { return o.largeFolder > 0 && s.imap != "" && s.http != "" }, (*bench).sizes},
		{"growth", func(s *system) bool { return o.growth && s.http != "" }, (*bench).growth},
	}
}

// finalBenchmarks returns the benchmarks that run once, after all rounds: they restart the systems.
func finalBenchmarks() []benchmark {
	return []benchmark{
		{"footprint", func(*system) bool { return true }, (*bench).footprint},
		{"large", func(s *system) bool { return s.http != "" }, (*bench).largeAttachments},
	}
}

// run starts the systems, runs the rounds and prints the table. Systems take turns in every round,
// so that a slow minute of the machine affects all of them.
func (b *bench) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.start(ctx); err != nil {
		return err
	}
	for round := range b.options.rounds {
		b.runRound(ctx, round)
	}
	for _, w := range finalBenchmarks() {
		for _, s := range b.systems {
			if b.options.only.MatchString(w.name) && w.supports(s) {
				b.runBenchmark(ctx, w, s, 0)
			}
		}
	}
	if ctx.Err() != nil {
		b.failed = errors.Join(b.failed, errors.New("interrupted: the table has what was measured until then"))
	}
	size := "everything"
	if b.options.quick {
		size = "quick: less of everything than the rows say"
	}
	fmt.Printf("%s\n%s\n%s; %d rounds, medians; at most %v or %d messages per counted run. A dash: the system does not do this.\n\n",
		b.machine, packageVersions(), size, b.options.rounds, b.options.limit, b.options.count)
	return errors.Join(b.report.print(os.Stdout, rows()), b.failed)
}

func (b *bench) runRound(ctx context.Context, n int) {
	for _, w := range benchmarks(b.options) {
		if !b.options.only.MatchString(w.name) {
			continue
		}
		for _, s := range b.systems {
			if w.supports(s) {
				b.runBenchmark(ctx, w, s, n)
			}
		}
	}
}

// runBenchmark runs a benchmark; it reports and notes a failure, and the run goes on.
func (b *bench) runBenchmark(ctx context.Context, w benchmark, s *system, round int) {
	if ctx.Err() != nil {
		return
	}
	err := waitIdle(ctx)
	begin := time.Now()
	if err == nil {
		err = w.run(b, ctx, s, round)
	}
	if err != nil && ctx.Err() == nil {
		b.failed = errors.Join(b.failed, fmt.Errorf("%s on %s: %w", w.name, s.name, err))
	}
	fmt.Fprintf(os.Stderr, "round %d: %s on %s, %v %v\n", round+1, w.name, s.name, time.Since(begin).Round(time.Millisecond), errorNote(err))
	for _, r := range rows() {
		if !strings.HasPrefix(r.id, w.name+"/") {
			continue
		}
		if c := b.report.cells[[2]string{r.id, s.name}]; c != nil {
			fmt.Fprintf(os.Stderr, "    %-16s %s\n", r.id, c)
		} else if err != nil {
			b.report.note(r.id, s.name, "failed")
		}
	}
}

func errorNote(err error) string {
	if err == nil {
		return ""
	}
	return "failed: " + err.Error()
}

// start starts every available system. It notes a missing peer in the table; Mailstead must start.
func (b *bench) start(ctx context.Context) error {
	o := b.options
	if o.mailstead != "" && !o.skip.MatchString("Mailstead, SQLite") {
		if err := startMailstead(ctx, b, "SQLite", "sqlite"); err != nil {
			return fmt.Errorf("starting Mailstead on SQLite: %w", err)
		}
		b.noteSetup("Mailstead, SQLite")
	}
	if o.mailstead != "" && o.postgres != "" && !o.skip.MatchString("Mailstead, PostgreSQL") {
		database, err := newDatabase(ctx, o.postgres, "all")
		if err == nil {
			err = startMailstead(ctx, b, "PostgreSQL", database)
		}
		if err != nil {
			return fmt.Errorf("starting Mailstead on PostgreSQL: %w", err)
		}
		b.noteSetup("Mailstead, PostgreSQL")
	}
	var auth *system
	for _, format := range []string{"maildir", "mdbox"} {
		if o.skip.MatchString("Dovecot " + format) {
			continue
		}
		s, err := startDovecot(ctx, b, format)
		b.notePeer("Dovecot "+format, "flags not flushed (its default)", err)
		if format == "maildir" && err == nil {
			auth = s
		}
	}
	if !o.skip.MatchString("Postfix") {
		s, err := startPostfix(ctx, b, auth)
		words := "relays without DKIM; files by virtual(8) after its 250"
		if s != nil && s.noAuth {
			words += "; no AUTH"
		}
		b.notePeer("Postfix", words, err)
	}
	return nil
}

func (b *bench) noteSetup(name string) {
	b.report.note("setup", name, fmt.Sprintf("%s, %d mailboxes; delivery always running", plural(b.options.accounts, "account"), mailboxCount))
}

func (b *bench) notePeer(name, words string, err error) {
	if err != nil {
		words, _, _ = strings.Cut(err.Error(), "\n")
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	b.report.note("setup", name, words)
}

// newDatabase creates an empty database beside the one in the URL.
func newDatabase(ctx context.Context, at, label string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", errors.New("the PostgreSQL URL can't be read")
	}
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	name := fmt.Sprintf("bench_%d_%s", os.Getpid(), label)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func (b *bench) close() error {
	var errs []error
	for _, s := range b.systems {
		errs = append(errs, s.process.stop())
		if s.sink != nil {
			errs = append(errs, s.sink.Close())
		}
	}
	errs = append(errs, b.names.Close())
	if b.options.keep {
		fmt.Fprintln(os.Stderr, "kept:", filepath.Clean(b.dir))
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}
