// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "strings"

// note is a short message.
func note(subject string) string {
	return crlf(`From: Bob Smith <bob@demo.test>
To: alice@demo.test
Subject: ` + subject + `
Date: Mon, 2 Mar 2026 10:00:00 +0100
Message-ID: <` + subject + `@demo.test>

Dear Alice, this is ` + subject + `.
`)
}

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

// mail has parts of all kinds that BODY[…] distinguishes.
var mail = crlf(`From: =?utf-8?q?J=C3=BCrgen?= <juergen@example.org>
To: alice@demo.test, "Carol" <carol@example.org>
Cc: dave@example.org
Subject: =?utf-8?b?R3LDvMOfZQ==?= from the sea
Date: Tue, 3 Mar 2026 23:30:00 -0500
Message-ID: <letter@example.org>
X-Colour: dark blue
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=outer

This is for old readers.
--outer
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

Gr=C3=BC=C3=9Fe vom Meer, and a secret word: xylo=
phone.
--outer
Content-Type: message/rfc822

From: inner@example.org
Subject: The inner one
Content-Type: multipart/alternative; boundary=inner

--inner
Content-Type: text/plain

inner text
--inner
Content-Type: text/html

<p>inner html</p>
--inner--
--outer
Content-Type: application/octet-stream; name=a.bin
Content-Transfer-Encoding: base64
Content-Disposition: attachment; filename=a.bin

AAECAwQF
--outer--
`)
