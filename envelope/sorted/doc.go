// Package sorted sorts slices of large elements. The compiler makes a copy of slices.SortFunc, of
// 10 to 30 KB, for each type of element; with thirty types that was half a megabyte of the program.
// All types share the code of this package. If speed matters, use slices.SortFunc, which is twice
// as fast.
package sorted
