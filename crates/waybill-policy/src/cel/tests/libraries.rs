//! What the libraries say.

use super::*;

#[test]
fn texts_count_characters() {
    check("'héllo'.size()", "5");
    check("'héllo'.charAt(1)", "'é'");
    check("'héllo'.charAt(5)", "''");
    check("'héllo'.charAt(6)", "error: index out of range: 6");
    check("'héllo hé'.indexOf('hé', 1)", "6");
    check("'héllo'.indexOf('x')", "-1");
    check("'ababab'.lastIndexOf('ab')", "4");
    check("'ababab'.lastIndexOf('ab', 3)", "2");
    check("'héllo'.substring(1, 3)", "'él'");
    check("'héllo'.substring(3, 1)", "error: index out of range: 1");
    check("' a b '.trim()", "'a b'");
    check("'AbÉ'.lowerAscii() + 'abé'.upperAscii()", "'abÉABé'");
    check("'hello hello'.replace('he', 'we', 1)", "'wello hello'");
    check("'abc'.replace('', '-')", "'-a-b-c-'");
    check("'a,b,c'.split(',')", "['a', 'b', 'c']");
    check("'a,b,c'.split(',', 2)", "['a', 'b,c']");
    check("'abc'.split('')", "['a', 'b', 'c']");
    check("'a'.split(',', 0)", "[]");
    check("['a', 'b'].join('-')", "'a-b'");
    check("[1].join()", "error: no such overload: join of a list that holds more than texts");
    check("strings.quote('a\"\\n')", r#"'"a\"\n"'"#);
    check("'abc'.reverse()", "'cba'");
    check("'a'.contains('') && 'abc'.endsWith('c')", "true");
}

#[test]
fn patterns_read_as_re2_reads_them() {
    check("'abc'.matches('^[a-c]+$')", "true");
    check("matches('abc', 'b')", "true");
    // Digits, letters and spaces of other scripts are none to RE2.
    check(r"'٣'.matches('\\d')", "false");
    check(r"'é'.matches('\\w')", "false");
    check(r"'é'.matches('^[\\w-]$')", "false");
    check(r"'\u00a0'.matches('\\s')", "false");
    check(r"'é'.matches('^[^\\d]$')", "true");
    check("'['.matches('^[[]$')", "true");
    check("']'.matches('^[]]$')", "true");
    check("'&'.matches('^[a&&b]$')", "true");
    check("'-'.matches('^[a--]$')", "true");
    check("'x'.matches('^[[:alpha:]]$')", "true");
    check("'abc'.matches('a' + 'b')", "true");
    check("'abc'.matches(string(1) + '(')", "error: error: unclosed group");
    check("'abc 123'.find('[0-9]+')", "'123'");
    check("'a1b22'.findAll('[0-9]+')", "['1', '22']");
    check("'a1b22'.findAll('[0-9]+', 1)", "['1']");
}

#[test]
fn format_writes_as_go_does() {
    check(
        "'%s is %d, %.2f, %x, %b, %e'.format(['a', 42, 3.14159, 255, 5, 1234.5])",
        "'a is 42, 3.14, ff, 101, 1.234500e+03'",
    );
    check("'%s %s %s'.format([[1, 'a'], {'k': true}, null])", "'[1, a] {k: true} null'");
    check("'%%'.format([])", "'%'");
    check(
        "'%s'.format([])",
        "error: error during formatting: there are more clauses than arguments",
    );
    check(
        "'%d'.format(['a'])",
        "error: error during formatting: '%d' does not take a value of type string",
    );
    check("'%X %x'.format(['hi', b'hi'])", "'6869 6869'");
    check("'%.999f'.format([1.0])", "error: error during formatting: the precision is too high");
}

#[test]
fn lists_and_sets() {
    check("[3, 1, 2].sort()", "[1, 2, 3]");
    check("['b', 'a'].sortBy(x, x)", "['a', 'b']");
    check("[{'n': 2}, {'n': 1}].sortBy(x, x.n).map(x, x.n)", "[1, 2]");
    check("[1, 'a'].sort()", "error: no such overload: _<_(int, string)");
    check("[1, 2, 2].sum() + [1, 5, 3].max() + [4, 2].min()", "12");
    check("[].min()", "error: min called on empty list");
    check("[1, 2].isSorted() && ![2, 1].isSorted()", "true");
    check("[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2", "true");
    check("[1, 2, 1.0].distinct()", "[1, 2]");
    check("[1, [2, [3]]].flatten()", "[1, 2, [3]]");
    check("[1, [2, [3]]].flatten(5)", "[1, 2, 3]");
    check("lists.range(3).reverse()", "[2, 1, 0]");
    check("[1, 2, 3].slice(1, 3)", "[2, 3]");
    check("[1, 2, 3].slice(2, 9)", "error: cannot slice(2, 9), list is length 3");
    check("[1, 2].first().value() + [1, 2].last().value()", "3");
    check("[].first()", "none");
    check(
        "sets.contains([1, 2], [2.0]) && sets.equivalent([1, 1, 2], [2, 1]) && sets.intersects([1], [1, 2])",
        "true",
    );
    check("['a'].includes('a') && 'a'.includes('a')", "true");
}

#[test]
fn quantities_compare_as_amounts() {
    check("quantity('1Gi').isGreaterThan(quantity('1G'))", "true");
    check("quantity('500m').add(quantity('1.5')).asInteger()", "2");
    check("quantity('2').sub(3).sign()", "-1");
    check("quantity('1Ki').asApproximateFloat()", "1024.0");
    check("quantity('1').compareTo(quantity('1000m'))", "0");
    check("quantity('1') == quantity('1000m')", "true");
    check("quantity('500m').asInteger()", "error: cannot convert value to integer");
    check("isQuantity('1Xi') || !isQuantity('1Mi')", "false");
}

#[test]
fn addresses_and_urls() {
    check("isIP('::1') && isIP('10.0.0.1') && !isIP('10.0.0') && !isIP('::ffff:1.2.3.4')", "true");
    check("ip('127.0.0.1').isLoopback() && ip('fe80::1').isLinkLocalUnicast()", "true");
    check("ip('8.8.8.8').isGlobalUnicast() && ip('8.8.8.8').family() == 4", "true");
    check("ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')", "true");
    check(
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP('11.0.0.0')",
        "true",
    );
    check("cidr('::/0').containsIP('::1') && !cidr('::/0').containsIP('1.2.3.4')", "true");
    check(
        "cidr('10.0.0.0/8').containsCIDR('10.0.0.0/16') && !cidr('10.0.0.0/16').containsCIDR('10.0.0.0/8')",
        "true",
    );
    check("string(cidr('10.1.2.3/8').masked())", "'10.0.0.0/8'");
    check("string(cidr('1.2.3.4/0').masked().ip())", "'0.0.0.0'");
    check("isCIDR('10.0.0.0/33') || isCIDR('10.0.0.0/+8') || isCIDR('10.0.0.0/08')", "false");
    check("url('https://user@[::1]:80/a%20b?x=1&x=%3D').getHostname()", "'::1'");
    check("url('https://h:80/a?x=1&x=%3D').getQuery()['x']", "['1', '=']");
    check(
        "url('https://h:80/a').getPort() + url('/path').getEscapedPath() + url('http://h').getScheme()",
        "'80/pathhttp'",
    );
    check("isURL('../a') || isURL('https://h:port/') || isURL('/%zz')", "false");
}

#[test]
fn versions_and_formats() {
    check("semver('1.2.3').isLessThan(semver('1.10.0'))", "true");
    check("semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.10'))", "true");
    check("semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", "true");
    check("semver('v01.1', true).major()", "1");
    check("isSemver('v1.0') || isSemver('01.0.0')", "false");
    check("format.dns1123Label().validate('ok').hasValue()", "false");
    check("format.named('dns1123Label').value().validate('NO').value().size()", "1");
    check("format.named('none')", "none");
}

#[test]
fn times_and_spans() {
    check("duration('1h30m').getMinutes()", "90");
    check("string(duration('1.5s'))", "'1.5s'");
    check("duration('1h') + duration('-30m') == duration('30m')", "true");
    check("duration('1')", "error: invalid duration: it must be numbers with units, such as 1h30m");
    check("timestamp('2024-02-29T12:00:00Z').getDayOfYear()", "59");
    check("timestamp('2024-02-29T23:30:00Z').getDate('+01:00')", "1");
    check("timestamp('2024-01-01T00:00:00Z').getDayOfWeek()", "1");
    check(
        "timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')",
        "true",
    );
    check("string(timestamp('2024-01-01T00:00:00Z') + duration('1s'))", "'2024-01-01T00:00:01Z'");
    check("timestamp('9999-12-01T00:00:00Z') + duration('2000000h')", "error: timestamp overflow");
    check(
        "timestamp('2024-01-01T00:00:00Z').getHours('Europe/Berlin')",
        "error: unknown time zone: use UTC or an offset such as +02:00",
    );
}

#[test]
fn conversions_do_not_wrap() {
    check("int('42') + int(3.9) + int(2u)", "47");
    check("int(1e30)", "error: integer overflow");
    check("uint(-1)", "error: unsigned integer overflow");
    check("string(1.0) + string(0.5) + string(1e21)", "'10.51e+21'");
    check("bool('true') && string(b'abc') == 'abc'", "true");
    check("string(b'\\xff')", "error: invalid UTF-8 in bytes, cannot convert to string");
    check("double('x')", "error: type conversion error from 'string' to 'double'");
}

#[test]
fn rights_are_asked_of_the_authorizer() {
    check(
        "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
        "true",
    );
    check(
        "authorizer.group('').resource('pods').subresource('exec').check('create').allowed()",
        "false",
    );
    check("authorizer.requestResource.check('create').allowed()", "true");
    check(
        "authorizer.serviceAccount('default', 'x').group('').resource('pods').check('create').allowed()",
        "false",
    );
    check("authorizer.path('/healthz').check('get').reason()", "'RBAC'");
    check("authorizer.group('').resource('pods').check('create').errored()", "false");
}
