// SPDX-License-Identifier: Apache-2.0

package dashboard

import "strings"

// Browsers and systems by substrings of their User-Agent. Most also name others, so the first match
// counts.
var (
	browsers = [...][2]string{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"Vivaldi/", "Vivaldi"}, {"FxiOS/", "Firefox"}, {"Firefox/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
	}
	systems = [...][2]string{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"CrOS", "ChromeOS"}, {"Mac OS X", "a Mac"}, {"Linux", "Linux"}, {"BSD", "BSD"},
	}
)

// describeUserAgent describes a User-Agent in words, such as “Chrome on Linux”. It returns an
// unknown one unchanged.
func describeUserAgent(text string) string {
	find := func(list [][2]string) string {
		for _, x := range list {
			if strings.Contains(text, x[0]) {
				return x[1]
			}
		}
		return ""
	}
	browser, system := find(browsers[:]), find(systems[:])
	switch {
	case text == "":
		return "Unknown browser"
	case browser == "":
		return text
	case system == "":
		return browser
	}
	return browser + " on " + system
}
