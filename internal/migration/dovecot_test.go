// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

const dovecotConfig = `
base_dir = %[1]s/run
state_dir = %[1]s/run
log_path = %[1]s/log
protocols = imap
ssl = yes
ssl_cert = <%[1]s/cert.pem
ssl_key = <%[1]s/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain
mail_location = mdbox:~/mdbox
mail_fsync = never
mail_max_userip_connections = 0
%[6]s
passdb {
  driver = static
  args = password=Dovecot-1
}
userdb {
  driver = static
  args = uid=%[2]s gid=%[3]s home=%[1]s/mail/%%u
}
service imap-login {
  chroot =
  inet_listener imap {
    address = 127.0.0.1
    port = %[4]d
  }
  inet_listener imaps {
    address = 127.0.0.1
    port = %[5]d
    ssl = yes
  }
}
service anvil {
  chroot =
}
namespace inbox {
  inbox = yes
  %[7]s
  mailbox "Sent Items" {
    special_use = \Sent
  }
}
`

// dovecot is a Dovecot instance of the test's own. Every user may sign in.
type dovecot struct {
	t           testing.TB
	dir         string
	plain, imap string // addresses: without TLS at first, with TLS
}

const dovecotPassword = "Dovecot-1"

// startDovecot starts a Dovecot with additional namespace settings.
func startDovecot(t testing.TB, namespace string) *dovecot {
	t.Helper()
	program := needtest.Program(t, "dovecot")
	dir, err := os.MkdirTemp("", "dovecot") // paths of its sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"run", "mail"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	must(os.Chmod(dir, 0o755))                        //nolint:gosec // the store's user is another
	must(os.Chmod(filepath.Join(dir, "mail"), 0o777)) //nolint:gosec // likewise
	pair := certtest.New(t, "Dovecot").ServerConfig("localhost").Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(err)
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key},
	} {
		must(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	user, group, more := "nobody", "nogroup", ""
	if os.Geteuid() != 0 {
		user, group = strconv.Itoa(os.Geteuid()), strconv.Itoa(os.Getegid())
		name := os.Getenv("USER")
		more = fmt.Sprintf("default_internal_user = %[1]s\ndefault_login_user = %[1]s\ndefault_internal_group = %[2]s", name, group)
	}
	ports := [2]int{dnstest.FreePort(t, "127.0.0.1"), dnstest.FreePort(t, "127.0.0.1")}
	d := &dovecot{t: t, dir: dir, plain: fmt.Sprintf("127.0.0.1:%d", ports[0]), imap: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	file := filepath.Join(dir, "dovecot.conf")
	must(os.WriteFile(file, fmt.Appendf(nil, dovecotConfig, dir, user, group, ports[0], ports[1], more, namespace), 0o644)) //nolint:gosec // read by its own users
	cmd := exec.Command(program, "-F", "-c", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("Dovecot's log:\n%s", text[max(0, len(text)-4096):])
		}
	})
	servertest.Eventually(t, func() string {
		c, err := net.Dial("tcp", d.plain)
		if err != nil {
			return err.Error()
		}
		_ = c.Close()
		return ""
	})
	return d
}

// login signs in as a user.
func (d *dovecot) login(user string) *imapclient.Client {
	return signIn(d.t, d.imap, user, dovecotPassword)
}

func signIn(t testing.TB, addr, user, password string) *imapclient.Client {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // our own
	if err != nil {
		t.Fatal(err)
	}
	c := migration.Client(conn)
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Login(user, password).Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// dovecotSource is the source for a user's mailbox on the Dovecot, or on a proxy in front of it.
func dovecotSource(addr, user, tls string) client.NewMigrationSource {
	host, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	return client.NewMigrationSource{Host: host, Port: n, TLS: tls, Username: user, Password: dovecotPassword, InsecureSkipVerify: true}
}
