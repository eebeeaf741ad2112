// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// specimen is a message that breaks or strains a rule.
type specimen struct{ name, text string }

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

// head returns an ordinary header, without the empty line; more are additional fields.
func head(more string) string {
	return crlf("From: Ann <ann@example.net>\nTo: bob@demo.test\nSubject: malformed\nDate: Fri, 02 Jan 2026 03:04:05 +0000\nMessage-ID: <m@example.net>\n" + more)
}

// fields returns a message with additional header fields.
func fields(more, body string) string { return head(more) + "\r\n" + crlf(body) }

// typed returns a message of this content type.
func typed(contentType, body string) string {
	return fields("MIME-Version: 1.0\nContent-Type: "+contentType+"\n", body)
}

// nested returns multiparts nested to this depth.
func nested(levels int) string {
	var b strings.Builder
	b.WriteString(head("MIME-Version: 1.0\n"))
	for i := range levels {
		fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d.\r\n\r\n--b%d.\r\n", i, i)
	}
	b.WriteString("\r\nthe innermost needle\r\n")
	for i := levels - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "--b%d.--\r\n", i)
	}
	return b.String()
}

// corpus returns all specimens.
func corpus() []specimen {
	return append(append(append(shapes(), headers()...), structures()...), contents()...)
}

// shapes returns messages with bad lines, headers or bodies.
func shapes() []specimen {
	return []specimen{
		{"one byte", "x"},
		{"an empty line", "\r\n"},
		{"a body alone", "\r\nno header, a needle\r\n"},
		{"a header alone", head("")},
		{"a header that breaks off", "From: ann@example.net\r\nSubject: br"},
		{"no line end at the end", fields("", "no line end")},
		{"text without a header", "Dear Bob,\r\nthere is a needle: in this line.\r\n\r\nAnn\r\n"},
		{"bare LF", strings.ReplaceAll(fields("", "one\ntwo\n"), "\r\n", "\n")},
		{"bare CR", strings.ReplaceAll(fields("", "one\ntwo\n"), "\r\n", "\r")},
		{"all line ends", fields("X-A: 1\r\n", "") + "one\rtwo\nthree\r\nfour\n\rfive\r\r\nsix\n\r\n"},
		{"LF ends the header", "From: ann@example.net\r\nSubject: x\r\n\nbody\r\n"},
		{"NUL in the body", fields("", "a\x00needle\x00\n\x00\x00\n")},
		{"NUL in the header", fields("X-Nul: a\x00b\n", "text\n") + "\r\n"},
		{"NUL in fields of the envelope", "From: \"A\x00nn\" <ann\x00@example.net>\r\nSubject: a\x00b\r\nContent-Type: text/plain; name=\"a\x00b\"\r\n\r\nx\r\n"},
		{"control characters", fields("X-Ctl: \x01\x02\x07\x08\x1b[31m\x7f\n", "\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x1b\x1f\x7f\n")},
		{"a space on the empty line", head("") + " \r\nis this the body?\r\n\r\nthis is\r\n"},
		{"it begins with a space", " folded from nowhere\r\nSubject: x\r\n\r\nbody\r\n"},
		{"mbox From line", "From ann@example.net Fri Jan  2 03:04:05 2026\r\n" + fields("", "From here to there\n>From there\n")},
		{"mbox From line, quoted", ">From ann@example.net Fri Jan  2 03:04:05 2026\r\n" + fields("", "text\n")},
		{"byte order mark", "\ufeff" + fields("", "text\n")},
		{"UTF-16", typed("text/plain; charset=utf-16", "") + "\xff\xfeh\x00i\x00\r\x00\n\x00"},
		{"dots", fields("", ".\n..\n. \n...x\n.")},
		{"a line of 1 MB", fields("", strings.Repeat("0123456789abcdef", 1<<16)+"\n")},
		{"100,000 empty lines", fields("", strings.Repeat("\n", 100_000))},
		{"Content-Length lies", fields("Content-Length: 3\nLines: 99999\nStatus: RO\n", "this is longer than three\n")},
		{"what looks like IMAP", fields("Subject: {5}\nX-Imap: * 1 EXISTS\n", "* BYE {100}\na001 OK done\n)\n{3+}\n")},
	}
}

// headers returns messages whose fields break rules.
func headers() []specimen {
	return []specimen{
		{"no colons", "From ann\r\nSubject\r\nnothing here\r\n\r\nbody\r\n"},
		{"spaces before colons", "From : ann@example.net\r\nSubject\t: spaced\r\nContent-Type  : text/html\r\n\r\n<p>x\r\n"},
		{"empty names and values", ": nothing\r\nSubject:\r\nFrom:\r\nTo: \r\nCc:\t\r\nContent-Type:\r\nContent-Transfer-Encoding:\r\nMessage-ID:\r\nDate:\r\n\r\nx\r\n"},
		{"odd names", "X!#$%&'*+-.^_`|~: a\r\nX(comment): b\r\nX\xe4: c\r\nX\"q\": d\r\nSubject: odd\r\n\r\nx\r\n"},
		{"a header line of 1 MB", fields("X-Long: "+strings.Repeat("x", 1<<20)+"\n", "after\n")},
		{"a subject of 1 MB", "Subject: " + strings.Repeat("needle ", 1<<17) + "\r\nFrom: ann@example.net\r\n\r\nafter\r\n"},
		{"a field folded 20,000 times", fields("X-Fold:"+strings.Repeat("\n x", 20_000)+"\n", "after\n")},
		{"20,000 fields", fields(strings.Repeat("X-Many: x\n", 20_000), "after\n")},
		{"folded with nothing", fields("X-Empty:\n \n\t\n \nX-Next: 1\n", "text\n")},
		{"8-bit in header", "From: J\xfcrgen <j@example.net>\r\nTo: \xe9\xe8 <bob@demo.test>\r\nSubject: Gr\xfc\xdfe needle\r\nX-\xfc: y\r\n\r\nx\r\n"},
		{"UTF-8 in header", "From: Jürgen <jürgen@exämple.net>\r\nSubject: Grüße needle 日本語 🙂\r\nMessage-ID: <ü@example.net>\r\n\r\nx\r\n"},
		{"invalid UTF-8", "From: \"\xc3\x28\xf0\x9f\x99\" <a\xff@example.net>\r\nSubject: \xc3\xa9 \xc3 \xed\xa0\x80 \xf8\x88\x80\x80\x80\r\nContent-Disposition: attachment; filename=\"\xc3\"\r\n\r\n\xc3\x28\r\n"},
		{"all fields twice", head("") + head("Content-Type: text/html\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\nContent-Transfer-Encoding: 7bit\nMIME-Version: 1.0\nMIME-Version: 2.0\nContent-ID: <1>\nContent-ID: <2>\nContent-Disposition: inline\nContent-Disposition: attachment\n") + "\r\nPHA+\r\n"},
		{"two Content-Types", fields("Content-Type: multipart/mixed; boundary=a\nContent-Type: multipart/mixed; boundary=b\n", "--a\n\nof a\n--b\n\nof b\n--b--\n--a--\n")},
		{"groups", address(`Undisclosed recipients:;, Team: a@x.test, "B, C" <b@x.test>;, A:B:c@x.test;;, :d@x.test;, E: e@x.test`)},
		{"unterminated quote", address(`"Ann <ann@example.net>, bob@demo.test`)},
		{"unterminated everything", address(`Ann (comment <a@x.test, "b\`)},
		{"route addresses", address(`<@a.test,@b.test:c@d.test>, Dan <@a.test:dan@x.test>, <@nowhere>, <@a.test`)},
		{"angles", address(`<>, <, >, <<a@x.test>>, <a@x.test> b, a@x.test <b@x.test>, <a@x.test><b@x.test>, @, a@, @b, a@@b, <a b@c d>`)},
		{"commas and semicolons", address(`,,,;;; , ; a@x.test ; b@x.test , ,`)},
		{"comments", address(`(a(b(c))) a(x)@(y)x.test (z), "q" (r) <a@x.test(s)>, ` + strings.Repeat("(", 10_000))},
		{"domain literals and quotes", address(`a@[127.0.0.1], a@[IPv6:::1], "a b"@x.test, "a\"b\\"@x.test, a."b c".d@x.test, a@[unterminated`)},
		{"5,000 addresses", address(strings.TrimSuffix(strings.Repeat("a@x.test, ", 5000), ", "))},
		{"names", address(`=?utf-8?q?A=2C_B?= <a@x.test>, "=?utf-8?q?C?=" <c@x.test>, back\slash "quo\"ted" <b@x.test>, 'single' <s@x.test>`)},
		{"bad encoded words", "Subject: =?utf-8?q?never ends =?nocharset?q?x?= =?utf-8?x?y?= =?utf-8?b?not*base64!?= =?utf-8?b?4pi?= =?utf-8?q?=ZZ=C3?= =?=?= =??q??= =?utf-8?q?a b?=\r\n =?utf-8?b?4piD?=\r\n\t=?iso-2022-jp?b?GyRC?=\r\nFrom: =?utf-8?b?w6Q?=x <a@x.test>\r\n\r\nx\r\n"},
		{"dates", "Date: yesterday\r\nSubject: x\r\nX-Date: 1\r\n\r\nx\r\n"},
		{"a date out of range", "Date: Wed, 99 Foo 20260 25:61:61 +9999 (never\r\nSubject: x\r\n\r\nx\r\n"},
		{"ids", fields("In-Reply-To: text, <a@b> <c d@e> <<f>> <g\nReferences: "+strings.Repeat("<r@example.net>\n ", 5000)+"\nContent-ID: no angles\n", "x\n")},
		{"strings that need care", typed(`application/x; name="a\"b\\c(d){5}"; x="%"`, "x\n")},
		{"a thousand parameters", typed("text/plain"+strings.Repeat("; x=y", 1000), "x\n")},
		{"bad RFC 2231", fields("Content-Type: text/plain; name*0*=utf-8''%C3; name*1*=%A4%ZZ%; name*3=lost; name*01=x; name**=y; *=z; name*x=w; charset*=us-ascii'en'utf-8\nContent-Disposition: attachment; filename*=broken; filename*=''; filename*0=a; filename=b; filename*99999999999=c\n", "x\n")},
		{"content types", typed("text", "x\n")},
		{"a content type of a slash", typed("/", "x\n")},
		{"a content type without type", typed("/plain; charset=utf-8", "x\n")},
		{"a content type of two slashes", typed("text/plain/html; a/b=c", "x\n")},
		{"a content type of semicolons", typed(";;; ; ;", "x\n")},
		{"a content type with an open quote", typed(`text/plain; charset="utf-8`, "x\n")},
		{"a content type with comments", typed("(a)text(b)/(c)plain(d); (e) charset (f) = (g) utf-8 (h); (unterminated", "x\n")},
		{"a content type in 8-bit", typed("t\xe4xt/pl\xe4in; n\xe4me=\xe4", "x\n")},
		{"a disposition of nonsense", fields("Content-Disposition: ;=;\"\nContent-Language: ,,de, ,en (x),\nContent-Location: \xfc \" \\\nContent-MD5: (\nContent-Description: =?x\n", "x\n")},
		{"a name that is a path", fields("Content-Disposition: attachment; filename=\"../../etc/passwd\n\t\x00x\"\n", "x\n")},
	}
}

func address(list string) string {
	return "From: " + list + "\r\nSender: " + list + "\r\nReply-To: " + list + "\r\nTo: " + list + "\r\nCc: " + list + "\r\nBcc: " + list +
		"\r\nSubject: addresses\r\n\r\nx\r\n"
}

// structures returns messages with misplaced parts.
func structures() []specimen {
	const two = "--b\n\none needle\n--b\nContent-Type: text/html\n\n<p>two</p>\n--b--\n"
	many := func(n int) string {
		return typed("multipart/digest; boundary=b", strings.Repeat("--b\nContent-Type: text/plain\n\nx\n", n)+"--b--\n")
	}
	return []specimen{
		{"no last boundary", typed("multipart/mixed; boundary=b", "--b\n\none\n--b\n\ntwo, a needle\n")},
		{"it ends in a boundary", typed("multipart/mixed; boundary=b", "--b\n\none\n--b")},
		{"it ends in a part's header", typed("multipart/mixed; boundary=b", "--b\n\none\n--b\nContent-Type: text/ht")},
		{"no boundary parameter", typed("multipart/mixed", two)},
		{"an empty boundary", typed(`multipart/mixed; boundary=""`, "--\n\none\n--\n\ntwo\n----\n")},
		{"a boundary that never comes", typed("multipart/mixed; boundary=other", two)},
		{"a boundary that begins another", typed("multipart/mixed; boundary=b", "--b\nContent-Type: multipart/mixed; boundary=bb\n\n--bb\n\ninner one\n--bb\n\ninner two\n--bb--\n--b\n\nouter\n--b--\n")},
		{"a boundary that another begins", typed("multipart/mixed; boundary=bb", "--bb\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\ninner one\n--b\n\ninner two\n--b--\n--bb\n\nouter\n--bb--\n")},
		{"the same boundary within", typed("multipart/mixed; boundary=b", "--b\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\none\n--b--\n--b\n\ntwo\n--b--\n")},
		{"an outer boundary ends the inner", typed("multipart/mixed; boundary=o", "--o\nContent-Type: multipart/mixed; boundary=i\n\n--i\n\none\n--o\n\ntwo\n--i\n\nno part\n--o--\n")},
		{"boundaries with more on their lines", typed("multipart/mixed; boundary=b", "--b  \t\n\none\n--bxyz\n\ntwo\n--b -- \n\nthree\n--b-- trailing\n")},
		{"boundaries of odd characters", typed(`multipart/mixed; boundary="a \"b\\c'()+_,-./:=?"`, "--a \"b\\c'()+_,-./:=?\n\none\n--a \"b\\c'()+_,-./:=?--\n")},
		{"a boundary of 300 characters", typed("multipart/mixed; boundary="+strings.Repeat("b", 300), "--"+strings.Repeat("b", 300)+"\n\none\n--"+strings.Repeat("b", 300)+"--\n")},
		{"a boundary of dashes", typed("multipart/mixed; boundary=--", "----\n\none\n----\n\ntwo\n------\n")},
		{"an ended multipart goes on", typed("multipart/mixed; boundary=b", "prologue\n"+two+"--b\n\nafter the end\n--b--\n")},
		{"empty parts", typed("multipart/mixed; boundary=b", "--b\n--b\n\n--b\n\n\n--b\nContent-Type: text/html\n--b\nContent-Type: message/rfc822\n\n--b--\n")},
		{"no parts", typed("multipart/mixed; boundary=b", "--b--\n")},
		{"an empty multipart", typed("multipart/mixed; boundary=b", "")},
		{"a part without an empty line", typed("multipart/mixed; boundary=b", "--b\nthis is no field\n--b\nX: y\nnor this\n--b--\n")},
		{"multipart in base64", fields("Content-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: base64\n", base64.StdEncoding.EncodeToString([]byte(crlf(two)))+"\n")},
		{"multipart said to be base64", fields("Content-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: base64\n", two)},
		{"multipart with LF alone", strings.ReplaceAll(typed("multipart/mixed; boundary=b", two), "\r\n", "\n")},
		{"multipart without MIME-Version", fields("Content-Type: MULTIPART/Alternative; BOUNDARY=b\n", two)},
		{"multipart of no kind", typed("multipart/; boundary=b", two)},
		{"message in base64", typed("multipart/mixed; boundary=b", "--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n"+base64.StdEncoding.EncodeToString([]byte(head("")+"\r\ninner\r\n"))+"\n--b--\n")},
		{"message in quoted-printable", typed("multipart/mixed; boundary=b", "--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: quoted-printable\n\nSubject: inner=\n one\n\nb=C3=A4\n--b--\n")},
		{"messages that are none", typed("multipart/digest; boundary=b", "--b\n\nno header\n--b\n\n\nno header either\n--b\nContent-Type: message/rfc822\n\nSubject: no body\n--b--\n")},
		{"a message in the message", typed("message/rfc822", "Subject: inner\nContent-Type: multipart/mixed; boundary=i\n\n--i\n\none needle\n--i--\n")},
		{"a report", typed("multipart/report; report-type=delivery-status; boundary=b", "--b\n\ntext\n--b\nContent-Type: message/delivery-status\n\nnot: a status\n--b\nContent-Type: message/partial; id=x; number=99; total=1\n\nSubject: part\n\nx\n--b\nContent-Type: message/external-body; access-type=nowhere\n\nContent-Type: text/plain\n\nphantom\n--b\nContent-Type: message/global\n\nSubject: ü\n\nx\n--b--\n")},
		{"1,000 multiparts in each other", nested(1000)},
		{"1,000 messages in each other", head("") + strings.Repeat("Content-Type: message/rfc822\r\n\r\nSubject: deeper\r\n", 1000) + "\r\nthe innermost needle\r\n"},
		{"10,000 parts", many(10_000)},
		{"12,000 parts", many(12_000)},
		{"1,000 boundaries open", strings.ReplaceAll(nested(99), "the innermost", strings.Repeat("--b\r\n--b1x\r\n", 5000)+"the innermost")},
	}
}

// contents returns messages with wrongly encoded parts.
func contents() []specimen {
	encoded := func(encoding, body string) string {
		return fields("MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: "+encoding+"\n", body)
	}
	return []specimen{
		{"bad base64", encoded("base64", "bmVl!!ZGxl\n====\nbm=Vl\nZ\n*\nZGxl=\n")},
		{"base64 that breaks off", encoded("base64", "bmVlZGx")},
		{"base64 on one line of 1 MB", encoded("base64", strings.Repeat("bmVlZGxl", 1<<17))},
		{"bad quoted-printable", encoded("quoted-printable", "=ZZ=4=\n=e4=E4 trailing \t \n=\n==3D=3\nneedle=")},
		{"a bad uuencode", encoded("x-uuencode", "begin 644 x\n#86)C\nnonsense\n")},
		{"an unknown encoding", encoded("rot13", "arrqyr\n")},
		{"encodings", encoded(`"base64" (comment); x=y`, "bmVlZGxl\n")},
		{"8-bit said to be 7-bit", encoded("7bit", "Gr\xc3\xbc\xc3\x9fe \xff needle\n")},
		{"binary", typed("application/octet-stream", "") + "\r\n\r\r\n\n\n\r\xff\xfe\x80needle"},
		{"no charset for 8-bit", typed("text/plain", "Gr\xfc\xdfe needle\n")},
		{"an unknown charset", typed("text/plain; charset=x-klingon-42", "Gr\xfc\xdfe needle\n")},
		{"a charset of nonsense", typed(`text/plain; charset="; DROP TABLE"; charset=utf-8; charset=`, "needle\n")},
		{"a wrong charset", typed("text/plain; charset=utf-8", "Gr\xfc\xdfe needle \xff\xfe\n")},
		{"an unfinished shift", typed("text/plain; charset=iso-2022-jp", "\x1b$BF|K\n\x1b$")},
		{"UTF-7", typed("text/plain; charset=utf-7", "Gr+APwA3w-e +AP needle +\n")},
		{"bad HTML", typed("text/html", "<html><<p needle=\"<!--><script>"+strings.Repeat("<div>", 20_000)+"needle</b><![CDATA[\n&#xffffffff;&#0;&nosuch\n")},
		{"yEnc", fields("", "=ybegin line=128 size=5 name=x\n\x8a\x8b\x00\x8d\n=yend size=99\n")},
		{"PGP", fields("", "-----BEGIN PGP MESSAGE-----\n\nnot base64 \xff\n-----END\n")},
		{"signed, without a signature", typed(`multipart/signed; boundary=b; micalg=; protocol="x/y"`, "--b\n\nsigned needle\n--b--\n")},
		{"flowed", typed("text/plain; format=flowed; delsp=perhaps", "a needle \n> \n>> quoted \n-- \n")},
	}
}
