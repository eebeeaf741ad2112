// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Python's smtplib and imaplib, in scripts that check themselves.
func TestPython(t *testing.T) {
	s := servertest.Start(t)
	p := newProgram(t, "DEV="+filepath.Join(s.Config.Data, "dev.json"))
	for _, script := range []string{"smtp.py", "imap.py", "imapscripts.py", "dsn.py"} {
		t.Run(script, func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("testdata", script))
			if err != nil {
				t.Fatal(err)
			}
			t.Log(p.must("", "/usr/bin/python3", path))
		})
	}
	for _, subject := range []string{"by smtplib, STARTTLS", "by smtplib, TLS", "by smtplib, to the MX"} {
		contains(t, arrived(t, s, 1, "INBOX", subject), "Subject: "+subject)
	}
	c := login(t, s, 1, nil)
	if found := search(t, c, "Archive", "kept by imaplib"); len(found) != 1 {
		t.Error(fmt.Sprint("Archive has ", found, " of imaplib's"))
	}
}
