// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/folder"
)

// Private addresses are not dialled unless the operator allows it.
func TestPrivateHosts(t *testing.T) {
	m := New(Options{Dialer: &egress.Dialer{}})
	for _, host := range []string{"127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "::1", "fd00::1"} {
		_, err := m.connect(t.Context(), &Source{Host: host, Port: 993, TLS: ImplicitTLS, Username: "ann", Password: "x"})
		var last permanentError
		if !errors.As(err, &last) || !strings.Contains(last.text, "no address on the public Internet") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// Local names for the source's folders.
func TestNames(t *testing.T) {
	special := map[string]string{folder.Sent: "Sent", folder.Drafts: "Drafts", folder.Junk: "Junk", folder.Trash: "Trash", folder.Archive: "Archive"}
	long := strings.Repeat("ü", 100)
	for _, c := range []struct {
		what   string
		spaces namespaces
		delim  string
		list   string // "name attribute" by lines
		want   string // "name > target", without the unwanted ones
	}{
		{"attributes win over names", namespaces{}, "/", "INBOX\nSent\nOut \\Sent\nSpam\nJunk \\Junk", "INBOX>INBOX|Junk>Junk|Out>Sent|Sent>Sent (2)|Spam>Spam"},
		{"Gmail", namespaces{}, "/", "INBOX\n[Gmail] \\Noselect\n[Gmail]/All Mail \\All\n[Gmail]/Starred \\Flagged\n[Gmail]/Important \\Important\n[Gmail]/Sent Mail \\Sent\n[Gmail]/Bin \\Trash\nWork",
			"INBOX>INBOX|Work>Work|[Gmail]/Bin>Trash|[Gmail]/Sent Mail>Sent"},
		{"a prefix", namespaces{personal: []string{"INBOX."}, others: []string{"user."}}, ".", "INBOX\nINBOX.Gesendet\nINBOX.a.b\nINBOX.INBOX\nuser.bob", "INBOX>INBOX|INBOX.Gesendet>Sent|INBOX.INBOX>INBOX (2)|INBOX.a.b>a/b"},
		{"below special ones", namespaces{}, "/", "INBOX\nINBOX/x\nSent Items\nSent Items/2019", "INBOX>INBOX|INBOX/x>INBOX/x|Sent Items>Sent|Sent Items/2019>Sent/2019"},
		{"what can't be", namespaces{}, ".", "a/b\na_b\n..x\nx\x01y", "..x>_/_/x|a/b>a_b|a_b>a_b (2)|x\x01y>x_y"},
		{"no levels", namespaces{}, "", "a/b\na.b", "a.b>a.b|a/b>a_b"},
		{"too long", namespaces{}, "/", long + long + "1\n" + long + long + "2", long + long + "1>" + strings.Repeat("ü", 127) + "|" + long + long + "2>" + strings.Repeat("ü", 125) + " (2)"},
		{"too deep", namespaces{}, ".", strings.TrimSuffix(strings.Repeat("x.", 23), "."), strings.TrimSuffix(strings.Repeat("x.", 23), ".") + ">" + strings.Repeat("x/", 19) + "x_x_x_x"},
	} {
		var all []listedFolder
		for line := range strings.SplitSeq(c.list, "\n") {
			name, attr, _ := strings.Cut(line, " \\")
			l := listedFolder{name: name, delim: c.delim}
			if attr != "" {
				l.attrs = []imap.MailboxAttr{imap.MailboxAttr("\\" + attr)}
			}
			all = append(all, l)
		}
		sortFolders(all)
		chart := newFolderMapper(all, c.spaces, special)
		var got []string
		for i := range all {
			if target := chart.target(&all[i]); chart.includes(&all[i], nil) {
				got = append(got, all[i].name+">"+target)
			}
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s:\n%s, not\n%s", c.what, text, c.want)
		}
	}
}

// A session with any source ends, and nothing incomplete is taken for a whole message.
func FuzzSource(f *testing.F) {
	f.Add([]byte("* OK [CAPABILITY IMAP4rev2 SPECIAL-USE] hi\r\nT1 OK [CAPABILITY IMAP4rev1 NAMESPACE LIST-EXTENDED] in\r\n* NAMESPACE ((\"INBOX.\" \".\")) NIL NIL\r\nT2 OK\r\n* LIST (\\Sent) \".\" INBOX.x\r\nT3 OK\r\n"))
	f.Add([]byte("* OK [CAPABILITY IMAP4rev1] hi\r\nT1 OK [CAPABILITY IMAP4rev1] in\r\n* LIST () \"/\" INBOX\r\nT2 OK\r\n* STATUS INBOX (MESSAGES 2)\r\nT3 OK\r\n* 2 EXISTS\r\nT4 OK [READ-ONLY]\r\n* SEARCH 1 2\r\nT5 OK\r\n" +
		"* 1 FETCH (UID 1 FLAGS (\\Seen) INTERNALDATE \" 1-Jan-2001 00:00:00 +0000\" RFC822.SIZE 3)\r\nT6 OK\r\n* 1 FETCH (UID 1 BODY[] {3}\r\nabc)\r\nT7 OK\r\n"))
	f.Add([]byte("+ go\r\n* BYE\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write(said)
			_ = far.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(far)) }()
		l := &sourceConn{Conn: near, idleTimeout: time.Minute, hideRev2: true}
		l.beginCommand(smallResponse)
		s := &session{conn: l, Client: imapclient.New(l, nil)}
		defer s.close()
		if s.login(&Source{Username: "ann", Password: "secret"}) != nil {
			return
		}
		all, spaces, _, err := s.listFolders()
		if err != nil {
			return
		}
		sortFolders(all)
		chart, taken := newFolderMapper(all, spaces, map[string]string{folder.Sent: "Sent"}), map[string]string{}
		var tasks []*folderTask
		for i := range all {
			target := chart.target(&all[i])
			if other, twice := taken[target]; twice && other != all[i].name {
				t.Fatalf("%q and %q both go to %q", other, all[i].name, target)
			}
			taken[target] = all[i].name
			tasks = append(tasks, &folderTask{name: all[i].name})
		}
		if s.fetchStatus(tasks) != nil {
			return
		}
		if _, err := s.examine("INBOX"); err != nil {
			return
		}
		uids, err := s.search(1, 0)
		if err != nil || len(uids) == 0 {
			return
		}
		uids = uids[:min(len(uids), 10)]
		if _, err := s.fetchMetadata(uids, true); err != nil {
			return
		}
		_ = s.detectLateUIDs(uids[0])
		_ = s.fetchBodies(uids, func(uint32) {}, func(_ uint32, text imap.LiteralReader) error {
			n, err := io.Copy(io.Discard, text)
			if err == nil && n != text.Size() && n > int64(len(said)) {
				t.Fatalf("%d bytes of %d", n, text.Size())
			}
			return err
		}, func(uint32) error { return nil })
	})
}
