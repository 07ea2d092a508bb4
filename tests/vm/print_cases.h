/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Calls of printf whose text the GPU and the C library of the guest have to agree on:
 * CASE(format, arguments ...), the same line compiled for both.
 */
CASE("plain text, and 100%%")
CASE("%s", "a string")
CASE("%%%s%%%s%%", "", "x")
CASE("%s|%s|%s", "12345678", "abc", "1234567812345678")
CASE("[%10s|%-10s|%.3s|%8.2s|%.0s]", "right", "left", "abcdef", "abcdef", "abc")
CASE("[%*s|%-*s|%.*s|%*.*s|%.*s]", 7, "star", 7, "star", 2, "star", -9, 3, "starred", -1, "all")
CASE("%d %d %d %i", 0, -1, 2147483647, -2147483647 - 1)
CASE("[%5d|%-5d|%05d|%+d|% d|%.3d|%8.3d|%+.0d]", 42, 42, 42, 42, 42, 42, -42, 0)
CASE("%u %u %x %X %o %#x %#X %#o %#x", 0u, 4294967295u, 0xbeefu, 0xbeefu, 8u, 255u, 255u, 8u, 0u)
CASE("%ld %lu %lx %li", -9223372036854775807L - 1, 18446744073709551615UL, 0x123456789abcdefUL, 5L)
CASE("%lld %llu %llX %llo", -1LL, 18446744073709551615ULL, 0xfedcba9876543210ULL, 7ULL)
CASE("%zu %zd %zx %jd %td", (size_t)1 << 40, (ptrdiff_t)-5, (size_t)255, (intmax_t)-6, (ptrdiff_t)7)
CASE("%hhd %hhu %hd %hu %hx", (signed char)-3, (unsigned char)200, (short)-300, (unsigned short)60000,
     (unsigned short)0xabc)
CASE("%c%c%c[%3c|%-3c]", 'a', 'b', '\n', 'x', 'y')
CASE("%p %p", (void *)0x1234, (void *)0x7fffffffffff)
CASE("%f %f %f %F", 0.0, -1.5, 1e10, 123456.789)
CASE("%e %E %.3e %.0e", 12345.678, 1e-300, 5e-324, 2.5)
CASE("%g %g %g %G %#g", 0.0001, 1e-5, 1e20, 1e-20, 1.0)
CASE("%a %A", 1.0, -0.1)
CASE("[%10.3f|%-10.3f|%010.3f|%+.1f|% .2f|%*.*f]", 3.14159, 3.14159, -3.14159, 2.25, 2.25, 9, 2, 1e3)
CASE("%f %f %f %e", __builtin_inf(), -__builtin_inf(), __builtin_nan(""), -0.0)
CASE("%.60f %.1f", 0.1, 1e300)
CASE("%d %s %f %d %s %lu %c", 1, "two", 3.0, 4, "five", 6UL, '7')
CASE("%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
     18, 19, 20)
CASE("%s%s%s%s%s%s%s%s", "1", "22", "333", "4444", "55555", "666666", "7777777", "88888888")
CASE("[%1000d][%-1000d][%.500d]", 1, 2, 3)
