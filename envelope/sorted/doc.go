// Package sorted sorts slices of large elements. The compiler makes a copy of
// slices.SortFunc for each type of element, of 10 to 30 KB, and with thirty types that
// was half a megabyte of the program. The one here is shared by all types. Where speed
// counts, slices.SortFunc is twice as fast.
package sorted
