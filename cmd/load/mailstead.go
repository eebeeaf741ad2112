// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/cmd/load/names"
	"github.com/mailstead/mailstead/cmd/load/smtp"
)

// sizeMailboxes is the number of mailboxes with folders whose sizes are compared; they are the last
// private ones.
const sizeMailboxes = 2

// serviceHost is the host name of every server under test.
const serviceHost = "mail.bench-host.net"

// mailstead starts and sets up the service like an operator and its customers: serve with
// production settings, accounts by the command line, domains and mailboxes by the API, DNS records
// in a zone that its resolver reads.
type mailstead struct {
	binary, dir, database string
	base                  int
	names                 *names.Server
	system                *system
}

func startMailstead(ctx context.Context, b *bench, engine, database string) error {
	addrs, outside, err := addExternalDomains(b.names, strings.ToLower(engine))
	if err != nil {
		return err
	}
	sink, err := smtp.Listen(addrs, b.sinkTLS)
	if err != nil {
		return err
	}
	m := &mailstead{binary: b.options.mailstead, dir: filepath.Join(b.dir, "mailstead-"+strings.ToLower(engine)), database: database, names: b.names}
	m.system = &system{name: "Mailstead, " + engine, sink: sink, externalDomains: outside, restart: m.start, dataDir: m.dir}
	info, err := os.Stat(m.binary)
	if err == nil {
		err = m.choosePorts()
	}
	if err != nil {
		return errors.Join(err, sink.Close())
	}
	m.system.binarySize = info.Size()
	if m.system.process, err = m.start(ctx); err != nil {
		return errors.Join(err, sink.Close())
	}
	b.systems = append(b.systems, m.system) // from here on, it is stopped with the others
	if err := b.idleMemory(ctx, m.system); err != nil {
		return err
	}
	return m.provision(ctx, strings.ToLower(engine)+"-home.net", b.options.accounts, b.options.rounds+sizeMailboxes)
}

// choosePorts selects free ports for the service.
func (m *mailstead) choosePorts() (err error) {
	if m.base, err = freePorts([]int{25, 80, 143, 443, 465, 587, 993}); err != nil {
		return err
	}
	listener := func(port int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(m.base+port)) }
	m.system.http, m.system.mx, m.system.submission, m.system.imap = listener(80), listener(25), listener(587), listener(993)
	m.system.greetingAddr = m.system.submission
	return nil
}

func (m *mailstead) start(ctx context.Context) (*process, error) {
	p, err := startProcess(m.dir+".log", nil, m.binary, "serve", "--host", serviceHost, "--postmaster", "operator@bench-sink.net", "--data", m.dir, "--bind", "127.0.0.1",
		"--port-base", fmt.Sprint(m.base), "--database", m.database, "--tls", "self-signed", "--resolver", m.names.Addr,
		"--mx-messages-per-hour", "0", // all of it comes from one network
		"--http-proxy-from", "127.0.0.0/8", // the cost of a TLS proxy is not measured
		"--smtp-port", fmt.Sprint(m.system.sink.Port), "--allow-private", "127.0.0.0/8", "--node", "bench", "--log-level", "warn",
		"--limit-requests-per-second", "0", "--limit-sends-per-hour", "0", "--limit-sends-per-day", "0", "--limit-recipients-per-day", "0")
	if err != nil {
		return nil, err
	}
	if err := p.waitGreeting(ctx, m.system.greetingAddr); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// addExternalDomains publishes the hundred target domains, each with its own mail host and address.
// The sink's port is chosen on the first address.
func addExternalDomains(n *names.Server, label string) (addrs, domains []string, err error) {
	for i := 1; i <= externalDomainCount; i++ {
		name, addr := fmt.Sprintf("%s-d%d.bench-sink.net", label, i), fmt.Sprintf("127.0.1.%d", i)
		err = errors.Join(err, n.Add(name, "MX", "10 mx."+name+"."), n.Add("mx."+name, "A", addr))
		addrs, domains = append(addrs, addr), append(domains, name)
	}
	return addrs, domains, err
}

// provision creates the accounts with a verified domain each, and the mailboxes of the first one.
func (m *mailstead) provision(ctx context.Context, suffix string, accounts, private int) error {
	api, err := dialHTTP(m.system.http)
	if err != nil {
		return err
	}
	defer func() { _ = api.close() }()
	first := ""
	for i := range accounts {
		token, err := m.createAccount(ctx, fmt.Sprintf("customer%d@%s", i, suffix))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("c%d.%s", i, suffix)
		id, err := m.createDomain(api, token, name)
		if err != nil {
			return fmt.Errorf("making the domain %s: %w", name, err)
		}
		if i == 0 {
			first = id
		}
		m.system.senders = append(m.system.senders, sender{token, "sender@" + name})
	}
	for i := range mailboxCount + private {
		password := fmt.Sprintf("Bench-%d-Passw0rd!", i)
		var made struct {
			Address string `json:"address"`
		}
		err := callAPI(api, "POST", "/mailboxes", m.system.senders[0].token, map[string]any{
			"domain_id": first, "local_part": fmt.Sprintf("box%d", i), "password": password, "quota_mb": 20480,
		}, &made)
		if err != nil {
			return fmt.Errorf("making a mailbox: %w", err)
		}
		m.system.mailboxes = append(m.system.mailboxes, mailbox{made.Address, password})
	}
	m.system.mailboxes, m.system.privateMailboxes = m.system.mailboxes[:mailboxCount], m.system.mailboxes[mailboxCount:]
	return nil
}

func (m *mailstead) createAccount(ctx context.Context, email string) (token string, err error) {
	out, err := exec.CommandContext(ctx, m.binary, "account", "create", "--email", email, "--data", m.dir, "--database", m.database).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("account create: %w: %s", err, out)
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "ms_") {
			return word, nil
		}
	}
	return "", errors.New("account create printed no key")
}

// createDomain adds a domain, publishes its DNS records, and has them verified.
func (m *mailstead) createDomain(api *httpConn, token, name string) (id string, err error) {
	var made struct {
		ID      string `json:"id"`
		Status  string `json:"status"`
		Records []struct {
			Kind, Type, Name, Value, Error string
			Priority                       *int
			Required                       bool
		} `json:"records"`
	}
	if err := callAPI(api, "POST", "/domains", token, map[string]any{"name": name}, &made); err != nil {
		return "", err
	}
	for _, r := range made.Records {
		if !r.Required {
			continue
		}
		if r.Type == "MX" && r.Priority != nil {
			r.Value = fmt.Sprintf("%d %s", *r.Priority, dns.Fqdn(r.Value))
		}
		if err := m.names.Add(r.Name, r.Type, r.Value); err != nil {
			return "", err
		}
	}
	if err := callAPI(api, "POST", "/domains/"+made.ID+"/verify", token, nil, &made); err != nil {
		return "", err
	}
	if err := callAPI(api, "POST", "/domains/"+made.ID+"/verify-dns", token, nil, &made); err != nil {
		return "", err
	}
	if made.Status != "verified" {
		return "", fmt.Errorf("it is %s: %+v", made.Status, made.Records)
	}
	return made.ID, nil
}

// callAPI makes an API call for set-up, which is not measured.
func callAPI(c *httpConn, method, path, token string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for range 20 {
		status, answer, err := c.do(method, path, token, body)
		switch {
		case err != nil:
			return err
		case status == 429:
			time.Sleep(500 * time.Millisecond) // a limit of the service; set-up is not measured
			continue
		case status >= 300:
			return fmt.Errorf("%s %s: %d %s", method, path, status, answer)
		}
		return json.Unmarshal(answer, out)
	}
	return fmt.Errorf("%s %s: 429 again and again", method, path)
}
