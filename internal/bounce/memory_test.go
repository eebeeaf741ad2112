// SPDX-License-Identifier: Apache-2.0

package bounce_test

import (
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/bounce"
	"github.com/mailstead/mailstead/internal/heaptest"
)

// Parsing a report needs little memory, for any content.
func TestMemoryOfReports(t *testing.T) {
	read := func(r io.Reader) any {
		report, err := bounce.Read(r)
		if err != nil {
			t.Error(err)
		}
		return report
	}
	const (
		from    = "From: mailer-daemon@x.test\r\n"
		reports = from + "Content-Type: multipart/report; boundary=b\r\n\r\n"
		status  = "--b\r\nContent-Type: message/delivery-status\r\n\r\n"
	)
	failed := "Final-Recipient: rfc822; " + strings.Repeat("a", 100) + "@b\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; " + strings.Repeat("5", 900) + "\n\n"
	for _, unit := range []string{" ", "\n", ">", "<", "\x80", "550-", "550 5.1.1 <a@b>: no such user\n"} {
		heaptest.Check(t, read, heaptest.Input{Head: from + "\r\n", Unit: unit}, heaptest.Input{Head: from + "Content-Type: text/html\r\n\r\n", Unit: unit})
	}
	heaptest.Check(t, read,
		heaptest.Input{Head: reports + status, Unit: failed},
		heaptest.Input{Head: reports, Unit: status + failed},
		heaptest.Input{Head: reports, Unit: "--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\n\r\n"},
		heaptest.Input{Head: reports, Unit: "--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\n"})
}
