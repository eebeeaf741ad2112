// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

const offlineimaprc = `[general]
accounts = bob
metadata = %[1]s/state
ui = basic
socktimeout = 60
fsync = false

[Account bob]
localrepository = near
remoterepository = far
utf8foldernames = yes

[Repository near]
type = Maildir
localfolders = %[1]s/mail
sep = /

[Repository far]
type = IMAP
remotehost = localhost
remoteport = %[2]d
%[3]s
sslcacertfile = %[4]s
remoteuser = %[5]s
remotepass = %[6]s
maxconnections = 2
expunge = yes
`

// offlineimap synchronizes a Maildir and a mailbox, whichever of them changes, and does nothing
// without changes.
func TestOfflineimap(t *testing.T) {
	for listener, security := range map[string]string{
		"imaps": "ssl = yes\nstarttls = no\nauth_mechanisms = PLAIN", "imap": "ssl = no\nstarttls = yes\nauth_mechanisms = LOGIN",
	} {
		t.Run(listener, func(t *testing.T) {
			s := servertest.Start(t)
			bob := s.Dev.Mailboxes[1]
			p := newProgram(t)
			near := newMaildir(t, p.home+"/mail", func(folder string) string { return folder })
			rc := p.write("offlineimaprc", fmt.Sprintf(offlineimaprc, p.home, s.Dev.Ports[listener], security, s.Dev.CACert, bob.Address, bob.Password))
			bothWays(t, s, near, func() {
				if out := p.must("", "offlineimap", "-o", "-c", rc); strings.Contains(out, "ERROR") {
					t.Fatal(out)
				}
			})
		})
	}
}
