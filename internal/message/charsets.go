// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
	"sync"

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
	if name == "" || isUTF8Charset(name) {
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

// isUTF8Charset reports whether a charset's name means UTF-8 or ASCII, or is empty. Text in it is
// decoded as UTF-8, with other bytes as windows-1252.
func isUTF8Charset(name string) bool {
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
	if alias := codePageAliases[name]; alias != "" {
		name = alias
	}
	if table := codePages[name]; table != "" {
		return newSingleByte(table)
	}
	return nil
}

var (
	utf16BE = unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	utf16LE = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM) // without a byte order mark, both Python and browsers read it so
	utf32BE = utf32.UTF32(utf32.BigEndian, utf32.UseBOM)
	utf32LE = utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)
)

// encodingAliases are names, and numbers of code pages, that golang.org/x/text knows only under
// other names, or whose meaning in mail differs from the web.
var encodingAliases = sync.OnceValue(func() map[string]encoding.Encoding {
	aliases := map[string]encoding.Encoding{}
	for _, a := range []struct {
		encoding encoding.Encoding
		names    string
	}{
		{utf16BE, "utf16be unicodebigunmarked 1201"},
		{utf16LE, "utf16 u16 utf16le unicodelittleunmarked 1200"},
		{utf32BE, "utf32 u32 utf32be ucs4"},
		{utf32LE, "utf32le"},
		{charmap.Windows1252, "8859 iso8859 latin ansi ansix31101983 819 28591"},
		{charmap.ISO8859_2, "28592"},
		{charmap.ISO8859_13, "l7 latin7"},
		{charmap.ISO8859_14, "l8 latin8 isoceltic"},
		{charmap.ISO8859_15, "l9 latin9 28605"},
		{charmap.ISO8859_16, "l10 latin10 isoir226"},
		{charmap.Windows874, "thai tis620 tis6200 tis62025290 tis62025291 isoir166 874"},
		{charmap.CodePage037, "039"},
		{charmap.KOI8R, "20866 878"},
		{charmap.KOI8U, "21866 1168"},
		{charmap.Macintosh, "macroman macintosh 10000"},
		{charmap.MacintoshCyrillic, "maccyrillic macukrainian"},
		{korean.EUCKR, "uhc korean ksc5601 ksc56011987 ksx1001 mackorean euckr 949 51949"},
		{japanese.EUCJP, "ujis eucjp eucjis2004 eucjisx0213 jisx0213 eucjpms 51932 20932"},
		{japanese.ShiftJIS, "sjis shiftjis shiftjis2004 shiftjisx0213 sjis2004 sjisx0213 mskanji macjapanese windows31j 932 943"},
		{japanese.ISO2022JP, "iso2022jp"},
		{simplifiedchinese.HZGB2312, "hz hzgb hzgb2312 52936"},
		{simplifiedchinese.GB18030, "gb180302000 gb18030 54936"},
		{simplifiedchinese.GBK, "chinese euccn eucgb2312cn gb23121980 gb231280 macsimpchinese 936 20936 51936"},
		{traditionalchinese.Big5, "big5 big5tw big5hkscs hkscs mactradchinese big5eten 950 951"},
	} {
		for name := range strings.FieldsSeq(a.names) {
			aliases[name] = a.encoding
		}
	}
	return aliases
})

// aliasEncoding returns the encoding of a name in encodingAliases, or of a code page.
func aliasEncoding(name string) encoding.Encoding {
	if n, ok := codePageNumber(name); ok {
		if enc := codePageEncoding(n); enc != nil {
			return enc
		}
	}
	return encodingAliases()[name]
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
	if enc := encodingAliases()[n]; enc != nil {
		return enc
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
