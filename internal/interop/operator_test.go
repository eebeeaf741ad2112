// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/smtp"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// operators is a service with a smart host and its operator commands.
type operators struct {
	*servertest.Process
	t    *testing.T
	host *smartHost
	c    *client.Client // a customer
	o    *client.Client // the operator, by the API
}

func newOperators(t *testing.T, binary, url string) *operators {
	t.Helper()
	host := &smartHost{t: t, came: make(chan string), answer: make(chan string)}
	host.reserve()
	t.Setenv("MAILSTEAD_RELAY", "smtp://"+host.addr)
	s := &operators{Process: servertest.NewProcess(t, binary, t.TempDir(), url), t: t, host: host}
	s.Start()
	s.c = s.Client()
	var err error
	if s.o, err = client.New(s.Dev.BaseURL, strings.TrimSpace(s.must("key", "create", "--scope", "operator", "--name", "test"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.o.CloseIdleConnections)
	return s
}

// run runs a command while the service runs.
func (s *operators) run(args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(s.t.Context(), s.Path, append(args, "--data", s.Data, "--database", s.Database)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ended) {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// must runs a command that must succeed.
func (s *operators) must(args ...string) string {
	s.t.Helper()
	status, out, errs := s.run(args...)
	if status != 0 {
		s.t.Fatalf("%v: status %d, %s", args, status, errs)
	}
	return out
}

// queue runs a command that changes deliveries, and parses its result.
func (s *operators) queue(args ...string) (r client.QueueResult) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must(append(append([]string{"queue"}, args...), "--json")...)), &r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *operators) send(to string) string {
	s.t.Helper()
	a, err := s.c.Send(s.t.Context(), &client.Send{FromEmail: "alice@demo.test", To: []string{to}, Subject: "Held", Text: "text"})
	if err != nil {
		s.t.Fatal(err)
	}
	return a.ID
}

// submit sends like alice's mail program.
func (s *operators) submit(to, subject string) {
	s.t.Helper()
	alice := s.Dev.Mailboxes[0]
	c, err := smtp.Dial(s.Addr("submission"))
	if err == nil {
		defer c.Close() //nolint:errcheck // closed by Quit
		err = c.StartTLS(s.TLS())
	}
	if err == nil {
		err = c.Auth(smtp.PlainAuth("", alice.Address, alice.Password, "127.0.0.1"))
	}
	if err == nil {
		err = c.Mail(alice.Address)
	}
	if err == nil {
		err = c.Rcpt(to)
	}
	if err == nil {
		w, failed := c.Data()
		if err = failed; err == nil {
			_, err = fmt.Fprint(w, strings.ReplaceAll(message(alice.Address, to, subject, "text"), "\n", "\r\n"))
			err = errors.Join(err, w.Close())
		}
	}
	if err == nil {
		err = c.Quit()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// until waits until the first recipient of a message meets the condition.
func (s *operators) until(id, what string, is func(r client.Recipient) bool) {
	s.t.Helper()
	servertest.Eventually(s.t, func() string {
		m, err := s.c.GetMessage(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		if !is(m.Recipients[0]) {
			return fmt.Sprintf("not %s: %+v", what, m.Recipients[0])
		}
		return ""
	})
}

// comes waits until mail for a recipient has reached the smart host.
func (s *operators) comes(want string) {
	s.t.Helper()
	select {
	case to := <-s.host.came:
		if to != want {
			s.t.Fatalf("mail for %s came, not for %s", to, want)
		}
	case <-time.After(servertest.Timeout):
		s.t.Fatalf("nothing came for %s", want)
	}
}

func (s *operators) ends(id string, state client.State) {
	s.t.Helper()
	s.until(id, string(state), func(r client.Recipient) bool {
		if r.Status.Final() && r.Status != state {
			s.t.Fatalf("it is %+v, not %s", r, state)
		}
		return r.Status == state
	})
}

// same fails the test unless a line of JSON equals the API's response, and parses it.
func same[T any](t *testing.T, what, line string, api T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	var own T
	if err := d.Decode(&own); err != nil {
		t.Errorf("%s: %v in %s", what, err, line)
	}
	a, err := json.Marshal(own)
	b, err2 := json.Marshal(api)
	if err != nil || err2 != nil || string(a) != string(b) {
		t.Errorf("%s: the command says\n%s\nthe API says\n%s", what, a, b)
	}
}

// reports counts the reports in alice's mailbox that mention an address.
func (s *operators) reports(to string) int {
	s.t.Helper()
	c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only read
	if err := c.Login(s.Dev.Mailboxes[0].Address, s.Dev.Mailboxes[0].Password).Wait(); err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		s.t.Fatal(err)
	}
	found, err := c.UIDSearch(&imap.SearchCriteria{Body: []string{to}}, nil).Wait()
	if err != nil {
		s.t.Fatal(err)
	}
	return len(found.AllUIDs())
}

// Operator commands, with the service running and stopped: the real binary on both engines.
func TestOperators(t *testing.T) {
	binary, err := servertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := newOperators(t, binary, url)
		for _, part := range []struct {
			name string
			f    func(*operators)
		}{{"dead destination", deadDestination}, {"under way", underWay}, {"held", heldMail}, {"wrong orders", wrongOrders}} {
			if !t.Run(part.name, s.in(part.f)) {
				return
			}
		}
	})
}

// firstHeld sends until the node knows of a hold: earlier messages are accepted.
func (s *operators) firstHeld(to string) (id string) {
	s.t.Helper()
	for {
		id = s.send(to)
		tried := false
		s.until(id, "held or tried", func(r client.Recipient) bool {
			select {
			case <-s.host.came:
				s.host.answer <- "250 2.0.0 ok"
				tried = true
			default:
			}
			return tried || r.Held
		})
		if !tried {
			return id
		}
	}
}

// in runs a part of the test with the same service.
func (s *operators) in(part func(s *operators)) func(t *testing.T) {
	return func(t *testing.T) {
		own := *s
		own.t = t
		part(&own)
	}
}

// Mail for a host that was down is retried on the operator's command.
func deadDestination(s *operators) {
	id := s.send("x@dead.example.net")
	s.until(id, "deferred", func(r client.Recipient) bool { return r.Status == "deferred" })
	out := s.must("queue", "list")
	contains(s.t, out, "DESTINATION", "dead.example.net", "refused")
	contains(s.t, s.must("queue", "show", id), "alice@demo.test", "x@dead.example.net  deferred", "next try", "attempt 1", "refused")
	s.host.open()
	if r := s.queue("retry", "--destination", "dead.example.net"); r.Changed != 1 {
		s.t.Errorf("retrying: %+v", r)
	}
	s.comes("x@dead.example.net")
	s.host.answer <- "250 2.0.0 ok"
	s.ends(id, "delivered")
	if n := s.must("queue", "list", "--json"); n != "" {
		s.t.Errorf("still: %s", n)
	}
}

// A drop lets a running attempt finish.
func underWay(s *operators) {
	for _, c := range []struct {
		answer string
		then   client.State
	}{{"250 2.0.0 ok", "delivered"}, {"550 5.1.1 nobody", "bounced"}, {"451 4.3.0 later", "deferred"}} {
		to := string(c.then) + "@slow.example.net" // a bounced recipient gets nothing more
		id := s.send(to)
		s.comes(to)
		status, out, errs := s.run("queue", "drop", id, "--wait", "0s", "--json")
		if status != 1 || !strings.Contains(out, `"matched":1,"changed":0,"leased":1`) || !strings.Contains(errs, "give the order again") || strings.Count(errs, "\n") != 1 {
			s.t.Errorf("dropping: status %d, %s, %s", status, out, errs)
		}
		s.host.answer <- c.answer
		s.until(id, string(c.then), func(r client.Recipient) bool { return r.Status == c.then })
		if c.then == "deferred" {
			s.until(id, "held", func(r client.Recipient) bool { return r.Held })
			if r := s.queue("drop", id, "--reason", "enough"); r.Changed != 1 {
				s.t.Errorf("dropping again: %+v", r)
			}
			s.ends(id, "failed")
		}
		m, err := s.c.GetMessage(s.t.Context(), id)
		if err != nil || m.Recipients[0].Attempts != 1 || len(m.Recipients[0].Timeline) != 1 {
			s.t.Errorf("it became %+v, %v", m, err)
		}
	}
}

// The command and the API list the same held mail. It is released, and dropped; senders of
// submissions get reports unless the drop is silent.
func heldMail(s *operators) {
	const where = "held.example.net"
	s.must("queue", "hold", "--destination", where, "--reason", "they asked")
	first := s.firstHeld("first@" + where)
	s.submit("silent@"+where, "silent")
	s.submit("told@"+where, "told")
	for i := range 10 {
		s.send(fmt.Sprintf("n%d@%s", i, where))
	}
	ctx := s.t.Context()

	holds, err := s.o.ListQueueHolds(ctx)
	if err != nil || len(holds) != 1 {
		s.t.Fatalf("%+v, %v", holds, err)
	}
	same(s.t, "a hold", s.must("queue", "list", "--holds", "--json"), holds[0])
	destinations, err := s.o.ListQueueDestinations(ctx, where, client.Paging{})
	if err != nil || len(destinations.Data) != 1 || destinations.Data[0].Held != 13 {
		s.t.Fatalf("%+v, %v", destinations, err)
	}
	same(s.t, "a destination", s.must("queue", "list", "--json"), destinations.Data[0])
	page, err := s.o.ListQueueDeliveries(ctx, client.QueueFilter{Destination: where, Held: new(true)}, client.Paging{})
	lines := strings.Split(strings.TrimSpace(s.must("queue", "list", "--held", "--destination", where, "--json")), "\n")
	if err != nil || len(page.Data) != 13 || len(lines) != 13 {
		s.t.Fatalf("%+v, %v, %d lines", page, err, len(lines))
	}
	for i := range lines {
		same(s.t, "a delivery", lines[i], page.Data[i])
	}
	shown, err := s.o.GetQueueMessage(ctx, first)
	if err != nil {
		s.t.Fatal(err)
	}
	same(s.t, "a message", s.must("queue", "show", first, "--json"), *shown)
	if out := s.must("queue", "list", "--destination", where, "--limit", "5"); strings.Count(out, "\n") != 6 || !strings.Contains(out, "held") {
		s.t.Errorf("five of them: %s", out)
	}
	if out := s.must("queue", "list", "--sender", "bob@demo.test", "--json"); out != "" {
		s.t.Errorf("bob's: %s", out)
	}

	of := map[string]string{}
	for _, d := range page.Data {
		of[d.Recipient] = d.Message
	}
	if r := s.queue("drop", of["silent@"+where], "--silent"); r.Changed != 1 {
		s.t.Errorf("dropping: %+v", r)
	}
	if r := s.queue("drop", of["told@"+where], "--reason", "the domain is gone"); r.Changed != 1 {
		s.t.Errorf("dropping: %+v", r)
	}
	servertest.Eventually(s.t, func() string {
		if s.reports("told@"+where) == 0 {
			return "nobody was told"
		}
		return ""
	})
	if s.reports("silent@"+where) != 0 {
		s.t.Error("a silent drop was told")
	}

	if r := s.queue("drop", "--destination", where, "--dry-run"); r.Matched != 11 || r.Changed != 0 {
		s.t.Errorf("counting: %+v", r)
	}
	status, _, errs := s.run("queue", "drop", "--destination", where)
	if status != 1 || !strings.Contains(errs, "--yes") {
		s.t.Errorf("a drop of much: status %d, %s", status, errs)
	}
	if r := s.queue("release", first); r.StillHeld != 1 || r.Changed != 0 {
		s.t.Errorf("releasing what stands: %+v", r)
	}
	s.Stop() // the rows also exist without the service
	if r := s.queue("drop", "--destination", where, "--older-than", "1ms", "--state", "queued", "--yes"); r.Changed != 11 {
		s.t.Errorf("dropping: %+v", r)
	}
	if r := s.queue("release", "--all"); r.Changed+r.StillHeld != 0 {
		s.t.Errorf("releasing: %+v", r)
	}
	if out := s.must("queue", "list", "--json") + s.must("queue", "list", "--holds", "--json"); out != "" {
		s.t.Errorf("still: %s", out)
	}
	s.Start()
	s.c = s.Client()
	s.ends(first, "failed")
}

// Errors are one line with a fix, and nothing changes.
func wrongOrders(s *operators) {
	for why, args := range map[string]string{
		"or say that everything is":         "queue drop",
		"not both":                          "queue hold --all --destination a.test",
		"not a domain name":                 "queue retry --destination a_b..c",
		"not the id of a message":           "queue release nonsense",
		"as queue list shows it":            "queue show 01999999-0000-7000-8000-000000000000",
		"The states are":                    "queue list --state delivered",
		"no such account":                   "queue hold --account nobody@example.org",
		"an address, or a domain":           "queue drop --sender -",
		"give a length of time":             "queue drop --older-than soon",
		"--wait must be":                    "queue drop --all --wait=-1s",
		"can't be used together":            "queue list --held --not-held",
		"remove the other flags":            "queue list --holds --held",
		"--limit must be":                   "queue list --limit=-1",
		"leave --email out":                 "key create --scope operator --email you@demo.test",
		"stands alone":                      "key create --scope operator,domains.read",
		"--email must name":                 "key list",
		"There is nothing with this id":     "key delete --operator nonsense",
		"can't be restricted to one domain": "key create --scope operator --domain demo.test",
	} {
		status, out, errs := s.run(strings.Fields(args)...)
		if status != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "mailstead: ") || !strings.Contains(errs, why) {
			s.t.Errorf("%s: status %d, %q, %q; want one line with %q", args, status, out, errs, why)
		}
	}
	if out := s.must("key", "list", "--operator"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "operator") {
		s.t.Errorf("the operators' keys: %s", out)
	}
	keys, err := s.Client().ListAPIKeys(s.t.Context(), client.Paging{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range keys.Data {
		if k.Name == "test" {
			s.t.Errorf("a customer sees %+v", k)
		}
	}
	id := strings.Fields(strings.Split(s.must("key", "list", "--operator"), "\n")[1])[0]
	s.must("key", "delete", "--operator", id)
	servertest.Eventually(s.t, func() string {
		if _, err := s.o.ListQueueHolds(s.t.Context()); !errors.Is(err, client.ErrUnknownKey) {
			return fmt.Sprintf("the deleted key: %v", err)
		}
		return ""
	})
}
