// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// dovecotConfig is the configuration for one store format. mail_fsync is Dovecot's default: it
// flushes messages before their OK, but not flags and indexes.
const dovecotConfig = `
base_dir = %[1]s/run
state_dir = %[1]s/run
log_path = %[1]s/log
protocols = imap
listen = 127.0.0.1
ssl = required
ssl_cert = <%[2]s
ssl_key = <%[3]s
auth_mechanisms = plain login
mail_location = %[4]s
mail_fsync = optimized
mail_max_userip_connections = 0
first_valid_uid = 1
passdb {
  driver = passwd-file
  args = scheme=PLAIN %[1]s/users
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home=%[1]s/mail/%%u
}
service imap-login {
  inet_listener imap {
    port = 0
  }
  inet_listener imaps {
    address = 127.0.0.1
    port = %[5]d
    ssl = yes
  }
  process_limit = 2000
}
service imap {
  process_limit = 2000
}
service auth {
  client_limit = 5000
  unix_listener %[1]s/auth {
    mode = 0666
  }
}
service anvil {
  client_limit = 5000
}
namespace inbox {
  inbox = yes
}
`

// startDovecot starts a Dovecot with one store format: "maildir" or "mdbox".
func startDovecot(ctx context.Context, b *bench, format string) (*system, error) {
	program, err := peerProgram("dovecot")
	if err != nil {
		return nil, err
	}
	base, err := freePorts([]int{993})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "dovecot-"+format)
	for _, d := range []string{"run", "mail"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "mail"), 0o777); err != nil { //nolint:gosec // the store's user is nobody
		return nil, err
	}
	sys := &system{name: "Dovecot " + format, imap: net.JoinHostPort("127.0.0.1", fmt.Sprint(base+993))}
	var users strings.Builder
	for i := range mailboxCount + b.options.rounds {
		sys.mailboxes = append(sys.mailboxes, mailbox{fmt.Sprintf("box%d@dovecot-home.net", i), fmt.Sprintf("Bench-%d", i)})
		fmt.Fprintf(&users, "%[1]s:%[2]s\nbox%[3]d@postfix-home.net:%[2]s\n", sys.mailboxes[i].address, sys.mailboxes[i].password, i)
	}
	sys.mailboxes, sys.privateMailboxes = sys.mailboxes[:mailboxCount], sys.mailboxes[mailboxCount:]
	location := map[string]string{"maildir": "maildir:~/Maildir", "mdbox": "mdbox:~/mdbox"}[format]
	config := fmt.Sprintf(dovecotConfig, dir, b.certFile, b.keyFile, location, base+993)
	file := filepath.Join(dir, "dovecot.conf")
	err = errors.Join(os.WriteFile(filepath.Join(dir, "users"), []byte(users.String()), 0o644), //nolint:gosec // read by Dovecot's own user
		os.WriteFile(file, []byte(config), 0o644)) //nolint:gosec // likewise
	if err != nil {
		return nil, err
	}
	sys.restart = func(ctx context.Context) (*process, error) {
		p, err := startProcess(dir+".log", nil, program, "-F", "-c", file)
		if err != nil {
			return nil, err
		}
		return p, waitTLS(ctx, p, sys.imap)
	}
	if sys.process, err = sys.restart(ctx); err != nil {
		return nil, errors.Join(err, sys.process.stop())
	}
	b.systems = append(b.systems, sys)
	return sys, b.idleMemory(ctx, sys)
}
