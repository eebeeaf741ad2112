// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"testing"

	mime "github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

const mbsyncrc = `IMAPAccount bob
Host localhost
Port %[2]d
SSLType %[3]s
SystemCertificates no
CertificateFile %[4]s
User %[5]s
Pass "%[6]s"

IMAPStore far
Account bob

MaildirStore near
Path %[1]s/mail/
Inbox %[1]s/mail/INBOX
SubFolders Verbatim

Channel all
Far :far:
Near :near:
Patterns *
Create Both
Remove Both
Expunge Both
SyncState *
`

// mbsync synchronizes a Maildir and a mailbox, whichever of them changes, and does nothing without
// changes.
func TestMbsync(t *testing.T) {
	for listener, security := range map[string]string{"imaps": "IMAPS", "imap": "STARTTLS"} {
		t.Run(listener, func(t *testing.T) {
			s := servertest.Start(t)
			bob := s.Dev.Mailboxes[1]
			p := newProgram(t)
			near := newMaildir(t, p.home+"/mail", mime.EncodeUTF7)
			rc := p.write("mbsyncrc", fmt.Sprintf(mbsyncrc, p.home, s.Dev.Ports[listener], security, s.Dev.CACert, bob.Address, bob.Password))
			bothWays(t, s, near, func() { p.must("", "mbsync", "-c", rc, "-a") })
		})
	}
}
