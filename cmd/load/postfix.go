// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mailstead/mailstead/cmd/load/smtp"
)

const postfixMain = `
compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
maillog_file = %[1]s/log
maillog_file_prefixes = %[1]s
myhostname = ` + serviceHost + `
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks_style = host
smtpd_peername_lookup = no
smtp_host_lookup = native
disable_dns_lookups = yes
smtpd_relay_restrictions = permit_mynetworks, permit_sasl_authenticated, reject
transport_maps = texthash:%[1]s/transport
smtp_tls_security_level = may
smtpd_tls_cert_file = %[2]s
smtpd_tls_key_file = %[3]s
virtual_mailbox_domains = postfix-home.net
virtual_mailbox_base = %[1]s/mail
virtual_mailbox_maps = texthash:%[1]s/boxes
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
`

// postfixMaster is Debian's master.cf without chroot, on our ports.
const postfixMaster = `
127.0.0.1:%[1]d inet n - n - - smtpd
127.0.0.1:%[2]d inet n - n - - smtpd
  -o smtpd_tls_security_level=encrypt
  -o smtpd_sasl_auth_enable=%[3]s
  -o smtpd_sasl_type=dovecot
  -o smtpd_sasl_path=%[4]s
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
proxywrite unix - - n - 1 proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
local unix - n n - - local
virtual unix - n n - - virtual
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
`

// startPostfix starts a Postfix. With a Dovecot beside it, submission requires AUTH as in
// Mailstead.
func startPostfix(ctx context.Context, b *bench, auth *system) (*system, error) {
	program, err := peerProgram("postfix")
	if err != nil {
		return nil, err
	}
	base, err := freePorts([]int{25, 587})
	if err != nil {
		return nil, err
	}
	addrs, outside, err := addExternalDomains(b.names, "postfix")
	if err != nil {
		return nil, err
	}
	sink, err := smtp.Listen(addrs, b.sinkTLS)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "postfix")
	sys := &system{
		name: "Postfix", sink: sink, externalDomains: outside, noAuth: auth == nil,
		mx: net.JoinHostPort("127.0.0.1", fmt.Sprint(base+25)), submission: net.JoinHostPort("127.0.0.1", fmt.Sprint(base+587)),
		queueLength: func() (int64, error) { return postfixQueue(dir) },
	}
	sys.greetingAddr = sys.mx
	// Postfix has no resolver setting of its own, so it gets the hosts as a table.
	var transport strings.Builder
	for i, name := range outside {
		fmt.Fprintf(&transport, "%s smtp:[%s]:%d\n", name, addrs[i], sink.Port)
	}
	socket := "none"
	if auth != nil {
		socket = filepath.Join(b.dir, "dovecot-maildir", "auth")
	}
	if err := writePostfix(dir, sys, auth, map[string]string{
		"main.cf":   fmt.Sprintf(postfixMain, dir, b.certFile, b.keyFile),
		"transport": transport.String(),
		"master.cf": fmt.Sprintf(postfixMaster, base+25, base+587, map[bool]string{true: "yes", false: "no"}[auth != nil], socket),
	}); err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	// The check creates the queue's directories; only master starts again, and ends on SIGTERM.
	_, _ = exec.CommandContext(ctx, program, "-c", dir, "check").CombinedOutput() // master reports missing files
	where, err := exec.CommandContext(ctx, "postconf", "-c", dir, "-h", "daemon_directory").Output()
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	master := filepath.Join(strings.TrimSpace(string(where)), "master")
	sys.restart = func(ctx context.Context) (*process, error) {
		p, err := startProcess(dir+".log", nil, master, "-d", "-c", dir)
		if err != nil {
			return nil, err
		}
		return p, p.waitGreeting(ctx, sys.mx)
	}
	if sys.process, err = sys.restart(ctx); err != nil {
		return nil, errors.Join(err, sys.process.stop(), sink.Close())
	}
	b.systems = append(b.systems, sys)
	return sys, b.idleMemory(ctx, sys)
}

func writePostfix(dir string, sys, auth *system, files map[string]string) error {
	var boxes strings.Builder
	for i := range mailboxCount {
		b := mailbox{address: fmt.Sprintf("box%d@postfix-home.net", i)}
		if auth != nil {
			b.password = auth.mailboxes[i].password // Dovecot knows both names
		}
		sys.mailboxes = append(sys.mailboxes, b)
		fmt.Fprintf(&boxes, "%s box%d/\n", b.address, i)
	}
	files["boxes"] = boxes.String()
	for _, d := range []string{"", "queue", "data", "mail"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // read by Postfix's own user
			return err
		}
	}
	if err := os.Chown(filepath.Join(dir, "mail"), 65534, 65534); err != nil {
		return err
	}
	out, err := exec.Command("chown", "postfix", filepath.Join(dir, "data")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// postfixQueue counts the messages in Postfix's queue.
func postfixQueue(dir string) (n int64, err error) {
	for _, part := range []string{"incoming", "active", "deferred"} {
		err := filepath.WalkDir(filepath.Join(dir, "queue", part), func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // delivered meanwhile
			}
			if err == nil && !d.IsDir() {
				n++
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}
