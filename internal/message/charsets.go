// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

// maxCharsetName is the maximum length of a charset's name.
const maxCharsetName = 64

// charsetDecoder returns a decoder from a charset to UTF-8, or nil if the charset is unknown. It
// knows the labels of the WHATWG encoding standard, which reads ISO-8859-1 as windows-1252, the
// IANA names, numbered code pages, and Python's names.
func charsetDecoder(label string) transform.Transformer {
	label = strings.ToLower(strings.Trim(label, " \t\"'"))
	if len(label) > maxCharsetName {
		return nil
	}
	label = trimYear(label)
	name := normalizeLabel(label)
	if name == "" || isUTF8(name) {
		return &lenientDecoder{}
	}
	for _, known := range []string{name, strings.TrimPrefix(name, "x"), strings.TrimPrefix(name, "cs")} {
		if t := builtinDecoder(known); t != nil {
			return t
		}
		if enc := aliasEncoding(known); enc != nil {
			return enc.NewDecoder()
		}
	}
	spellings := []string{label, strings.ReplaceAll(label, "_", "-"), name, strings.TrimPrefix(label, "x-"), strings.TrimPrefix(name, "x")}
	for _, s := range spellings {
		if enc, err := htmlindex.Get(s); err == nil && enc != encoding.Replacement {
			return enc.NewDecoder()
		}
	}
	for _, s := range append(spellings, "cs"+name) {
		if enc, err := ianaindex.MIME.Encoding(s); err == nil && enc != nil {
			return enc.NewDecoder()
		}
	}
	return nil
}

// trimYear removes the year from a name such as iso_8859-2:1987.
func trimYear(label string) string {
	rest, ok := strings.CutPrefix(label, "iso")
	if !ok {
		return label
	}
	if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, "-_ "), "8859"); !ok {
		return label
	}
	rest = strings.TrimLeft(rest, "-_ ")
	end := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if end < 1 || len(rest) != end+len("_1987") {
		return label
	}
	return "iso-8859-" + rest[:end]
}

// normalizeLabel returns a name in lower case without the differences between spellings.
func normalizeLabel(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, s)
}

// isUTF8 reports whether a charset's name means UTF-8 or ASCII, or is empty. Text in it is decoded
// as UTF-8, with other bytes as windows-1252.
func isUTF8(name string) bool {
	switch name {
	case "utf8", "utf", "u8", "utf8sig", "utf8mb4", "utf8j", "xutf8j", "utf8ucs2", "utf8ucs4", "unicode11utf8", "cp65001", "65001",
		"ascii", "usascii", "us", "csascii", "646", "iso646us", "iso646irv1991", "isoir6", "cp367", "ibm367", "ansix341968", "ansix341986",
		"unknown8bit", "xunknown", "unknown", "default", "8bit", "7bit", "binary":
		return true
	}
	return false
}

// builtinDecoder returns a decoder for a charset that golang.org/x/text doesn't know.
func builtinDecoder(name string) transform.Transformer {
	if n, ok := codePageNumber(name); ok {
		name = "cp" + n
	}
	switch name {
	case "utf7", "u7", "unicode11utf7", "cp65000":
		return &utf7Decoder{}
	case "iso2022kr", "cp50225":
		return &iso2022{g1: setKorean, start: setKorean}
	case "iso2022cn", "iso2022cnext", "cp50227":
		return &iso2022{g1: setChinese, start: setChinese}
	case "iso2022jp1", "iso2022jp2", "iso2022jp3", "iso2022jp2004", "iso2022jpext", "iso2022jpms", "iso2022jpmicrosoft",
		"cp50220", "cp50221", "cp50222", "jis7", "jis":
		return &iso2022{g1: setKatakana, start: setKatakana}
	}
	if table := codePage(name); table != "" {
		return newSingleByte(table)
	}
	return nil
}

// aliasEncoding returns the encoding of a name that golang.org/x/text knows only under other names,
// or whose meaning in mail differs from the web.
func aliasEncoding(name string) encoding.Encoding {
	if n, ok := codePageNumber(name); ok {
		if enc := codePageEncoding(n); enc != nil {
			return enc
		}
	}
	switch name {
	case "utf16be", "unicodebigunmarked":
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case "utf16", "u16", "utf16le", "unicodelittleunmarked": // without a byte order mark, both Python and browsers read it as little-endian
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case "utf32", "u32", "utf32be", "ucs4":
		return utf32.UTF32(utf32.BigEndian, utf32.UseBOM)
	case "utf32le":
		return utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)
	case "8859", "iso8859", "latin", "ansi", "ansix31101983":
		return charmap.Windows1252
	case "l7", "latin7":
		return charmap.ISO8859_13
	case "l8", "latin8", "isoceltic":
		return charmap.ISO8859_14
	case "l9", "latin9":
		return charmap.ISO8859_15
	case "l10", "latin10", "isoir226":
		return charmap.ISO8859_16
	case "thai", "tis620", "tis6200", "tis62025290", "tis62025291", "isoir166":
		return charmap.Windows874
	case "macroman", "macintosh":
		return charmap.Macintosh
	case "maccyrillic", "macukrainian":
		return charmap.MacintoshCyrillic
	case "uhc", "korean", "ksc5601", "ksc56011987", "ksx1001", "mackorean", "euckr":
		return korean.EUCKR
	case "ujis", "eucjp", "eucjis2004", "eucjisx0213", "jisx0213", "eucjpms":
		return japanese.EUCJP
	case "sjis", "shiftjis", "shiftjis2004", "shiftjisx0213", "sjis2004", "sjisx0213", "mskanji", "macjapanese", "windows31j":
		return japanese.ShiftJIS
	case "iso2022jp":
		return japanese.ISO2022JP
	case "hz", "hzgb", "hzgb2312":
		return simplifiedchinese.HZGB2312
	case "gb180302000", "gb18030":
		return simplifiedchinese.GB18030
	case "chinese", "euccn", "eucgb2312cn", "gb23121980", "gb231280", "macsimpchinese":
		return simplifiedchinese.GBK
	case "big5", "big5tw", "big5hkscs", "hkscs", "mactradchinese", "big5eten":
		return traditionalchinese.Big5
	}
	return nil
}

// codePageNumber returns the number in a code page's name, such as cp932, ms932, ibm037 or
// windows1252.
func codePageNumber(name string) (string, bool) {
	for _, prefix := range []string{"windows", "codepage", "csibm", "ibm", "dos", "mscp", "cp", "ms", ""} {
		if n, ok := strings.CutPrefix(name, prefix); ok {
			if _, err := strconv.ParseUint(n, 10, 16); err == nil && len(n) >= 3 {
				return n, true
			}
		}
	}
	return "", false
}

// codePageEncoding returns the encoding of a code page number.
func codePageEncoding(n string) encoding.Encoding {
	switch n {
	case "819", "28591":
		return charmap.Windows1252
	case "039":
		return charmap.CodePage037
	case "874":
		return charmap.Windows874
	case "932", "943", "31":
		return japanese.ShiftJIS
	case "936", "20936", "51936":
		return simplifiedchinese.GBK
	case "949", "51949":
		return korean.EUCKR
	case "950", "951":
		return traditionalchinese.Big5
	case "51932", "20932":
		return japanese.EUCJP
	case "52936":
		return simplifiedchinese.HZGB2312
	case "54936":
		return simplifiedchinese.GB18030
	case "1200":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case "1201":
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case "10000":
		return charmap.Macintosh
	case "20866", "878":
		return charmap.KOI8R
	case "21866", "1168":
		return charmap.KOI8U
	case "28592":
		return charmap.ISO8859_2
	case "28605":
		return charmap.ISO8859_15
	}
	for _, s := range []string{"windows-" + n, "cp" + n, "ibm" + n, "ibm0" + n, "ibm00" + n} {
		if enc, err := htmlindex.Get(s); err == nil {
			return enc
		}
		if enc, err := ianaindex.MIME.Encoding(s); err == nil && enc != nil {
			return enc
		}
	}
	return nil
}
