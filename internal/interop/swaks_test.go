// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestSwaks(t *testing.T) {
	s := servertest.Start(t)
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	port := func(listener string) string { return fmt.Sprint(s.Dev.Ports[listener]) }
	trust := []string{"--tls-ca-path", s.Dev.CACert, "--tls-verify"}
	auth := []string{"--auth", "PLAIN", "--auth-user", alice.Address, "--auth-password", alice.Password}
	outside := []string{"--from", "someone@example.net", "--port", port("smtp")}

	for name, c := range map[string]struct {
		args   []string
		status int      // 0: accepted
		says   []string // in its transcript
		to     string
	}{
		"MX in clear": {args: outside, says: []string{"-> DATA", "<-  250 2.0.0"}},
		"MX with STARTTLS": {
			args: append([]string{"--tls"}, append(trust, outside...)...), says: []string{"=== TLS started", "<~  250 2.0.0"},
		},
		"MX pipelined":   {args: append([]string{"--pipeline"}, outside...), says: []string{"PIPELINING", "<-  354", "<-  250 2.0.0"}},
		"MX has no AUTH": {args: append(append([]string{"--tls"}, auth...), outside...), status: 28},
		"no such mailbox": {
			args: outside, to: "nobody@demo.test", status: 24, says: []string{"<** 550 5.1.1"},
		},
		"no relay": {
			args: outside, to: "victim@example.org", status: 24, says: []string{"<** 550 5.7.1"},
		},
		"submission with STARTTLS": {
			args: append(append([]string{"--tls", "--from", alice.Address, "--port", port("submission")}, auth...), trust...),
			says: []string{"=== TLS started", "235 2.7.0", "<~  250 2.0.0"},
		},
		"submission with TLS": {
			args: append(append([]string{"--tls-on-connect", "--from", alice.Address, "--port", port("submissions")}, auth...), trust...),
			says: []string{"=== TLS started", "235 2.7.0", "<~  250 2.0.0"},
		},
		"submission, AUTH LOGIN, pipelined": {
			args: append([]string{"--tls", "--pipeline", "--from", alice.Address, "--port", port("submission"),
				"--auth", "LOGIN", "--auth-user", alice.Address, "--auth-password", alice.Password}, trust...),
			says: []string{"~> AUTH LOGIN", "235 2.7.0", "<~  250 2.0.0"},
		},
		"submission by API key": {
			args: append([]string{"--tls", "--from", "orders@demo.test", "--port", port("submission"), "--auth", "PLAIN", "--auth-user", "api",
				"--auth-password", s.Dev.APIKey, "--add-header", `X-Mailstead-Metadata: {"order":7}`}, trust...),
			says: []string{"235 2.7.0", "<~  250 2.0.0"},
		},
		"a wrong API key": {
			args: append([]string{"--tls", "--from", "orders@demo.test", "--port", port("submission"), "--auth", "PLAIN", "--auth-user", "api",
				"--auth-password", s.Dev.APIKey + "x"}, trust...), status: 28, says: []string{"535 5.7.8"},
		},
		"no AUTH in clear": {
			args: append([]string{"--from", alice.Address, "--port", port("submission")}, auth...), status: 28,
		},
		"no submission without AUTH": {
			args: append([]string{"--tls", "--from", alice.Address, "--port", port("submission")}, trust...), status: 23,
			says: []string{"<~* 530 5.7.0"},
		},
		"wrong password": {
			args: append([]string{"--tls", "--from", alice.Address, "--port", port("submission"),
				"--auth", "PLAIN", "--auth-user", alice.Address, "--auth-password", "Wrong-1-Password"}, trust...),
			status: 28, says: []string{"535 5.7.8"},
		},
		"no one else's From": {
			args:   append(append([]string{"--tls", "--from", bob.Address, "--port", port("submission")}, auth...), trust...),
			status: 23, says: []string{"550 5.7.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := bob.Address
			if c.to != "" {
				to = c.to
			}
			args := append([]string{"--server", "localhost", "--helo", "client.example.net", "--timeout", "50", "--to", to,
				"--h-Subject", name}, c.args...)
			out, err := newProgram(t).run("", "swaks", args...)
			status := 0
			if exit, ok := err.(interface{ ExitCode() int }); ok {
				status = exit.ExitCode()
			}
			if status != c.status {
				t.Fatalf("ended with %d (%v), not %d:\n%s", status, err, c.status, out)
			}
			contains(t, out, c.says...)
			if c.status == 0 {
				contains(t, arrived(t, s, 1, "INBOX", name), "Subject: "+name, "This is a test mailing")
			} else {
				absent(t, s, 1, name)
			}
		})
	}
}
