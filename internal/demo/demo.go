// SPDX-License-Identifier: Apache-2.0

// Package demo creates the account, domain, mailboxes and user of `mailstead dev`, and describes
// them in dev.json.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/durable"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/user"
)

// Domain is the demonstration domain, and Email the address of its account.
const (
	Domain = "demo.test"
	Email  = "you@" + Domain
)

// Service is the service in which Seed makes the demonstration data.
type Service struct {
	Accounts  *account.Accounts
	Domains   *domain.Domains
	Mailboxes *mailbox.Mailboxes
	Users     *user.Users
	File      string // dev.json
	BaseURL   string
	CACert    string // file
	Ports     map[string]int
	Log       *slog.Logger
}

// Info is the content of dev.json: everything that a script needs to start.
type Info struct {
	BaseURL   string         `json:"base_url"`
	APIKey    string         `json:"api_key"`
	Domain    domainInfo     `json:"domain"`
	Mailboxes []mailboxInfo  `json:"mailboxes"`
	Dashboard *dashboardInfo `json:"dashboard"`
	Ports     map[string]int `json:"ports"`
	CACert    string         `json:"ca_cert"`
}

type domainInfo struct {
	ID   db.ID  `json:"id"`
	Name string `json:"name"`
}

type mailboxInfo struct {
	ID       db.ID  `json:"id"`
	Address  string `json:"address"`
	Password string `json:"password"`
}

// dashboardInfo holds the credentials for the dashboard.
type dashboardInfo struct {
	URL      string `json:"url"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

// Seed creates the demonstration account, domain and mailboxes with the same calls as customers
// use, or finds them from an earlier start. Then it writes dev.json. All listeners must be open.
func (s *Service) Seed(ctx context.Context) (*Info, error) {
	dev := &Info{BaseURL: s.BaseURL, CACert: s.CACert, Ports: s.Ports}
	before := s.readInfo()
	acc, err := s.Accounts.ByEmail(ctx, Email)
	if fault.Is(err, fault.NotFound) {
		acc, err = s.Accounts.Create(ctx, Email, "Demo")
	}
	if err != nil {
		return nil, fmt.Errorf("making the demonstration account: %w", err)
	}
	dev.APIKey = before.APIKey
	if _, err := s.Accounts.Authenticate(ctx, dev.APIKey, netip.MustParseAddr("127.0.0.1")); err != nil {
		if _, dev.APIKey, err = s.Accounts.CreateKey(ctx, acc.ID, account.KeyParams{Name: "dev.json"}); err != nil {
			return nil, fmt.Errorf("making an API key: %w", err)
		}
	}
	if err := s.createDomain(ctx, acc.ID, dev); err != nil {
		return nil, fmt.Errorf("verifying %s: %w", Domain, err)
	}
	for _, name := range []string{"alice", "bob"} {
		if err := s.createMailbox(ctx, acc.ID, name, before, dev); err != nil {
			return nil, fmt.Errorf("making %s@%s: %w", name, Domain, err)
		}
	}
	if err := s.createUser(ctx, acc.ID, before, dev); err != nil {
		return nil, fmt.Errorf("making a user of the dashboard: %w", err)
	}
	return dev, s.writeInfo(dev)
}

// createUser creates a user for the dashboard.
func (s *Service) createUser(ctx context.Context, acc db.ID, before, dev *Info) error {
	dev.Dashboard = &dashboardInfo{URL: s.BaseURL + "/", Email: Email}
	if before.Dashboard != nil {
		dev.Dashboard.Password = before.Dashboard.Password
	}
	who, err := s.Users.ByEmail(ctx, Email)
	if err == nil && dev.Dashboard.Password != "" {
		return nil
	}
	dev.Dashboard.Password = secret.NewPassword()
	if err == nil { // dev.json was lost
		token, err := s.Users.CreateResetLink(ctx, who, false)
		if err != nil {
			return err
		}
		return s.Users.ResetPassword(ctx, token, dev.Dashboard.Password, nil)
	}
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	if err := s.Accounts.EnsureOperatorAccount(ctx); err != nil {
		return err
	}
	_, err = s.Users.Create(ctx, user.CreateParams{Email: Email, Name: "You", Password: dev.Dashboard.Password}, account.OperatorAccount, acc)
	return err
}

// createDomain adds the domain and verifies it through the DNS sandbox.
func (s *Service) createDomain(ctx context.Context, acc db.ID, dev *Info) error {
	d, err := s.Domains.Create(ctx, acc, Domain)
	if fault.Is(err, fault.Conflict) {
		found, _, listErr := s.Domains.List(ctx, acc, db.Page{Limit: db.MaxPageSize})
		if listErr != nil {
			return listErr
		}
		for _, f := range found {
			if f.Name == Domain {
				d, err = f, nil
			}
		}
	}
	if err != nil {
		return err
	}
	if _, err := s.Domains.VerifyOwnership(ctx, acc, d.ID); err != nil {
		return err
	}
	if d, err = s.Domains.CheckDNS(ctx, acc, d.ID); err != nil {
		return err
	}
	if !d.Sends || !d.Receives {
		return errors.New("the DNS sandbox did not answer as it should")
	}
	dev.Domain = domainInfo{d.ID, d.Name}
	return nil
}

func (s *Service) createMailbox(ctx context.Context, acc db.ID, name string, before, dev *Info) error {
	wanted := name + "@" + Domain
	found, _, err := s.Mailboxes.List(ctx, acc, mailbox.Filter{Domain: dev.Domain.ID}, db.Page{Limit: db.MaxPageSize})
	if err != nil {
		return err
	}
	for _, m := range found {
		if m.Address != wanted {
			continue
		}
		for _, known := range before.Mailboxes {
			if _, err := s.Mailboxes.Authenticate(ctx, mailbox.IMAP, wanted, known.Password, netip.MustParseAddr("127.0.0.1")); known.ID == m.ID && err == nil {
				dev.Mailboxes = append(dev.Mailboxes, known)
				return nil
			}
		}
		password, err := s.Mailboxes.SetPassword(ctx, acc, m.ID, nil)
		dev.Mailboxes = append(dev.Mailboxes, mailboxInfo{m.ID, wanted, password})
		return err
	}
	m, password, err := s.Mailboxes.Create(ctx, acc, mailbox.CreateParams{Domain: dev.Domain.ID, LocalPart: name})
	dev.Mailboxes = append(dev.Mailboxes, mailboxInfo{m.ID, wanted, password})
	return err
}

// readInfo returns the Info of an earlier start; an empty one if there was none.
func (s *Service) readInfo() *Info {
	dev := &Info{}
	text, err := os.ReadFile(s.File)
	if err == nil {
		err = json.Unmarshal(text, dev)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("the former dev.json can't be read; new passwords are made", "error", err)
		return &Info{}
	}
	return dev
}

// writeInfo replaces dev.json atomically: no script reads half of it, and no power failure
// empties it.
func (s *Service) writeInfo(dev *Info) error {
	text, err := json.MarshalIndent(dev, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(s.File, append(text, '\n'), 0o600)
}

// Print writes instructions for getting started.
func (d *Info) Print(w io.Writer) error {
	alice, bob := d.Mailboxes[0], d.Mailboxes[1]
	_, err := fmt.Fprintf(w, `
Mailstead is running. Everything below is local: nothing leaves this machine.

  Dashboard %[1]s/     %[13]s  %[14]s
  API       %[1]s/api/v1     key %[2]s
  IMAP      127.0.0.1:%[3]d (TLS), %[4]d (STARTTLS)
  SMTP      127.0.0.1:%[5]d (STARTTLS), %[6]d (TLS), %[7]d (MX)
  Mailboxes %[8]s  %[9]s
            %[10]s    %[11]s
  CA        %[12]s

Send a message:

  curl -s %[1]s/api/v1/outbound/send \
    -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' \
    -d '{"from_email":"%[8]s","to":["%[10]s"],"subject":"Hello","text":"Hello, Bob!"}'

Read it in bob's mailbox:

  curl -s --cacert %[12]s 'imaps://localhost:%[3]d/INBOX;MAILINDEX=*' --user '%[10]s:%[11]s'

See what happened:

  curl -s %[1]s/api/v1/events -H 'Authorization: Bearer %[2]s'

Stop with Ctrl-C. The same things stand in dev.json, next to the data.
`, d.BaseURL, d.APIKey, d.Ports["imaps"], d.Ports["imap"], d.Ports["submission"], d.Ports["submissions"], d.Ports["smtp"],
		alice.Address, alice.Password, bob.Address, bob.Password, d.CACert, d.Dashboard.Email, d.Dashboard.Password)
	return err
}
