/** What the redactor finds: a secret in every place, nested up to three times, in every encoding that a reader would decode. */
import { describe, expect, it } from 'vitest'
import { Redactor } from '../../../client/inspect/redactor.ts'
import { randomOf } from '../../support/random.ts'

const SECRET = 'S3cret'
const SHOWN = 'Sh0wn'
const FORM = 'application/x-www-form-urlencoded'
const MULTIPART = 'multipart/form-data; boundary=b'
const BASIC = Buffer.from(`me:${SECRET}`).toString('base64')

const redactor = new Redactor()

/** Whether somebody who decodes it as often as possible finds the word. */
function reveals(shown: string, word: string): boolean {
  for (let left = shown, before = ''; left !== before; ) {
    if (left.includes(word)) return true
    before = left
    left = left.replaceAll(/(?:%u|\\u)([0-9a-f]{4})|%([0-9a-f]{2})/gi, (_, wide: string | undefined, hex: string) =>
      String.fromCharCode(Number.parseInt(wide ?? hex, 16)),
    )
  }
  return false
}

function field(name: string, value: string): string {
  return redactor.fields([name, value])[1]!
}

/** Undefined stands for a body of which nothing is shown. */
function body(text: string, type = ''): string {
  return redactor.body(text, type) ?? ''
}

function part(head: string, value: string, name = 'a'): string {
  return `--b\r\ncontent-disposition: form-data; name="${name}"${head}\r\n\r\n${value}\r\n--b--\r\n`
}

function hex(char: string, digits = 2): string {
  return char.charCodeAt(0).toString(16).padStart(digits, '0')
}

type Encode = (text: string) => string
const encode: Encode = encodeURIComponent

const ENCODINGS: readonly Encode[] = [
  encode,
  text => encode(text).replaceAll(/%../g, code => code.toLowerCase()),
  text => encode(text).replaceAll('%20', '+'),
  text => Array.from(text, char => `%${hex(char)}`).join(''),
  text => Array.from(text, char => `%u${hex(char, 4)}`).join(''),
  text => encode(encode(text)),
  // No more than what could not be told from the URL around it.
  text => text.replaceAll(/[%&#+\s"'<>\\]/g, char => `%${hex(char)}`),
  text => text.replaceAll(/[%&#+\n\t]/g, char => `%${hex(char)}`).replaceAll(' ', '+'),
]

const NAMES = [
  'token',
  'passWord',
  'tOken',
  'apiKEY',
  'ACCESS_TOKEN',
  'client secret',
  'user[password]',
  'code',
  ' key ',
]

/** Signs that end a value somewhere. */
const SIGNS = ['', ...' +"\'<>#\\;,&%=?/:\n\t|{}[])@!\u00e9', '%20', 'x '.repeat(60)]

type Write = (name: string, value: string, encoded: Encode) => string
const SECRETS: readonly Write[] = [
  (name, value, encoded) => `/cb?x=1&${encoded(name)}=${encoded(value)}&y=2`,
  (name, value, encoded) => `https://h.example/cb?${encoded(name)}=${encoded(value)}`,
  (name, value, encoded) => `${encoded(name)}=${encoded(value)}`,
  (name, value, encoded) => `https://h.example/cb#${encoded(name)}=${encoded(value)}`,
  (name, value, encoded) => `/p;x=1;${encoded(name)}=${encoded(value)}`,
  (name, value) => JSON.stringify({ a: 1, [name]: value, b: [{ [name]: [value] }] }),
  (_, value) => `https://me:${encode(value)}@h.example/`,
  (_, value) => `//${encode(value)}@h.example/`,
]

type Nest = (text: string, encoded: Encode) => string
const NESTS: readonly Nest[] = [
  (text, encoded) => `/a?first=${SHOWN}&next=${encoded(text)}&last=1`,
  (text, encoded) => `https://h.example/p/q?next=${encoded(text)}&last=${SHOWN}`,
  (text, encoded) => `https://h.example/p#first=${SHOWN}&to=${encoded(text)}`,
  (text, encoded) => `first=${SHOWN}&to=${encoded(text)}`,
  (text, encoded) => `/${SHOWN};to=${encoded(text)}`,
  (text, encoded) => `/${SHOWN}?${encoded(text)}&y=2`,
  (text, encoded) => `/${SHOWN}?${encoded(text)}=1`,
  (text, encoded) => `/proxy/${encoded(text)}/more?last=${SHOWN}`,
  text => JSON.stringify({ first: SHOWN, url: text, list: [text, 1], 'a text': `see ${encode(text)}` }),
]

/** A URL in text ends at one of these, so they are encoded in it. */
const urlIn = (text: string) =>
  (text.startsWith('{') ? `/?${encode(text)}` : text).replaceAll(/[\s"'<>\\\u00e9]/g, char => `%${hex(char)}`)
/** One character per byte, and no line breaks. */
const lineOf = (text: string) => text.replaceAll(/[\n\t]/g, char => `%${hex(char)}`)
/** In quotation marks of either kind. */
const marked = (text: string) => text.replaceAll(/["'\\]/g, String.raw`\$&`)
/** `?` and `#` have one meaning in a path. */
const pathOf = (text: string) => (/^\/[^;{?%#]*(?:[?#].*)?$/s.test(text) ? urlIn(text) : `/?${encode(text)}`)

/** Each shows {@link SHOWN} around the text. */
const PLACES: Readonly<Record<string, (text: string) => string>> = {
  'the path': text => redactor.path(pathOf(text)) + SHOWN,
  'a parameter': text => redactor.path(`/a?first=${SHOWN}&next=${encode(text)}&last=${SHOWN}`),
  'a segment of the path': text => redactor.path(`/a/${encode(text)}?last=${SHOWN}`),
  referer: text => field('referer', lineOf(text)) + SHOWN,
  location: text => field('Location', lineOf(text)) + SHOWN,
  link: text => field('link', `<${urlIn(text)}>; rel=next; title=${SHOWN}, <${urlIn(text)}>; rel=last`),
  refresh: text => field('refresh', `0;url=${lineOf(text)}`) + SHOWN,
  'a form': text => body(`first=${SHOWN}&to=${encode(text)}&last=${SHOWN}`, FORM),
  JSON: text => body(JSON.stringify({ first: SHOWN, to: text, last: { x: SHOWN } }), 'application/json'),
  'a message': text => body(JSON.stringify([SHOWN, text])),
  'JSON in a sentence': text => body(`${SHOWN} 6" of ${JSON.stringify({ to: urlIn(text) })} ${SHOWN}`, 'text/plain'),
  'JSON that ends early': text => body(JSON.stringify({ first: SHOWN, list: [text, text] }).slice(0, -3)),
  'a part': text => body(part('', SHOWN) + part('', text), MULTIPART),
  'a part of plain text': text => body(part('', SHOWN) + part('\r\ncontent-type: text/plain', text), MULTIPART),
  'a part of JSON': text => body(part('\r\ncontent-type: application/json', JSON.stringify([SHOWN, text])), MULTIPART),
  'a part that is a form': text => body(part(`\r\nContent-Type: ${FORM}`, `a=${SHOWN}&to=${encode(text)}`), MULTIPART),
  HTML: text => body(`<p>${SHOWN}</p><a href="${urlIn(text)}">${SHOWN}</a>`, 'text/html'),
  'a value in quotation marks': text => body(`${SHOWN} password="${marked(text)}" user="${SHOWN}"`, 'text/plain'),
  'a value in single marks': text => body(`${SHOWN} { token: '${marked(text)}', user: '${SHOWN}' }`, 'text/plain'),
  'an attribute of HTML': text => body(`<a data-token = "${text.replaceAll('"', '&quot;')}">${SHOWN}</a>`, 'text/html'),
  'a line': text => body(`${SHOWN}\n${urlIn(text)}\n`, 'text/plain'),
}

describe('a secret', () => {
  it.each(Object.entries(PLACES))(
    'in %s is hidden, however it is nested and encoded, and what is around it is shown',
    (_, show) => {
      const random = randomOf(11)
      const one = <Kind>(list: readonly Kind[]) => list[Math.floor(random() * list.length)]!
      const found: string[] = []
      for (const write of SECRETS) {
        for (const sign of SIGNS) {
          let text = write(one(NAMES), `x${sign}${SECRET}`, one(ENCODINGS))
          for (let depth = 0; depth <= 3; depth++) {
            const shown = show(text)
            if (reveals(shown, SECRET) || !shown.includes(SHOWN)) found.push(`${text} -> ${shown}`)
            text = one(NESTS)(text, one(ENCODINGS))
          }
        }
      }
      expect(found.slice(0, 3)).toEqual([])
    },
  )

  it('leaves its neighbours at every depth, as far as it is decoded', () => {
    let text = `/cb?x=1&token=a b+c&in=${SHOWN}0`
    for (let depth = 1; depth <= 4; depth++) {
      text = `/a?first=${SHOWN}&next=${encode(text)}&last=${SHOWN}${depth}`
      const shown = redactor.path(text)
      for (let level = 0; level <= depth; level++) expect(shown).toContain(`${SHOWN}${level}`)
      expect(shown).toMatch(/\[redacted:[0-9a-f]{12}\]/)
    }
  })

  const cases: Readonly<Record<string, string>> = {
    'in quotation marks': body(`level=info password="x ${SECRET}" user=me`),
    'in single quotation marks': body(`PASSWORD='x ${SECRET}'\n`),
    'in quotation marks that are encoded': body(`<p>password=&quot;x ${SECRET}&quot;</p>`),
    'in quotation marks that are quoted': body(String.raw`log 6" \"token=\"x \\\" ${SECRET}\"`),
    'in quotation marks, behind an empty value': body(`<a href="/?token="><input password="" data-token="${SECRET}">`),
    'behind a value that does not end': body(`token="x\nuser=me password="${SECRET}"\n`),
    'in quotation marks in a query in a log': body(`GET /x?a=1&code="${SECRET}" 200`),
    'behind any sign': body(Array.from('$:!*@~^`=\xe9', sign => `a${sign}password=${SECRET} `).join('')),
    'behind an apostrophe': body(`note: 'tis, password="${SECRET}"`),
    'in marks that are cut off': body(`password = "x ${SECRET}`),
    'in an object of JavaScript': body(`{ user: 'me', password: 'x ${SECRET}' }`),
    'in an object of Python': body(`{'user': 'me', 'password': "it's ${SECRET}", 'token': 'it\\'s ${SECRET}'}`),
    'in an object of Ruby': body(`{"user"=>"me", "password"=>"x ${SECRET}", :token=>"${SECRET}"}`),
    'in an object of Java': body(`User{password=${SECRET}, to=Login(token=${SECRET})}`),
    'in a fragment with a question mark': redactor.path(`/x#token=a?${SECRET}`),
    'in a name with other signs': redactor.path(`/x?to'ken=${SECRET}&pass%22word=${SECRET}`),
    'in a part, with spaces around the boundary': body(
      part('', SHOWN) + part('', SECRET, 'token'),
      'multipart/form-data; boundary = b',
    ),
    'in a part with no boundary named': body(part('', SHOWN) + part('', SECRET, 'token'), 'multipart/form-data'),
    'in a part with spaces behind its boundary': body(
      part('', SHOWN).replace('--b', '--b \t') + part('', SECRET, 'token'),
      'multipart/form-data',
    ),
    'in a part with another boundary named': body(
      part('', SHOWN) + part('', SECRET, 'token'),
      'multipart/form-data; boundary=c',
    ),
    'in a part with a space in its boundary': body(
      (part('', SHOWN) + part('', SECRET, 'token')).replaceAll('--b', '--b c'),
      'multipart/form-data; boundary="b c"',
    ),
    'in a part with a quotation mark in its name': body(part('', SECRET, String.raw`pass\"word`), MULTIPART),
    'in basic credentials in any field': field('x-forwarded-auth', `Basic ${BASIC}`),
    'in basic credentials in a text': body(`curl -H "Authorization: Basic ${BASIC}"`),
    'in a head in a text': body(`TRACE / HTTP/1.1\r\ncookie: a=${SECRET}\r\nX-My-Token: ${SECRET}\r\n`),
    'in YAML': body(`a: 1\npassword: ${SECRET}\n`),
    'in a field with an underscore': field('X_Auth_Token', SECRET),
    'in a key for an API': field('x-goog-api-key', SECRET),
    'in a URL without a scheme, as a user': field('location', `//me:${SECRET}@h.example/`),
    'as a user, behind a quotation mark': field('location', `https://me:it's${SECRET}@h.example/`),
    'as a user with encoded signs': redactor.path(`/?to=${encode(`https://me:%40${SECRET}%22@h.example/x y`)}`),
    'as a long user': field('location', `https://me:${'x'.repeat(2000)}${SECRET}@h.example/`),
    'as a bearer token in a parameter': redactor.path(`/?header=Bearer+abcdefghijklmnop${SECRET}`),
    'in a part with its name encoded': body(part('', SECRET).replace('name="a"', "name*=UTF-8''to%6ben"), MULTIPART),
    'in a part with spaces around its name': body(part('', SECRET).replace('="a"', ' = "token"'), MULTIPART),
    'in a part of a part': body(
      part('\r\ncontent-type: multipart/mixed; boundary=c', part('', SECRET, 'token').replaceAll('--b', '--c')),
      MULTIPART,
    ),
    'in a part in base64': body(part('\r\ncontent-transfer-encoding: base64', SECRET), MULTIPART),
    'in a form as text': body(`a=1\r\npassword=${SECRET}\r\n`, 'text/plain'),
    'in a file of variables in JSON': body(JSON.stringify({ env: `A=1\nAPI_KEY=${SECRET}\nB=2` })),
    'in a connection string': body(JSON.stringify({ to: `Server=a b; Password = ${SECRET}` })),
    'of AWS': body(JSON.stringify({ SecretAccessKey: SECRET, SessionToken: SECRET })),
    'in a number that is long': body(`{"token":${'1'.repeat(600)}${SECRET}}`),
    'in JSON with escaped signs, behind an unbalanced quote': body(
      `6" of {"url":"/?x\\u003d1\\u0026token\\u003d${SECRET}"}`,
    ),
    'behind a quotation mark in a text': body(`?a=1&token=it's${SECRET}`, 'text/plain'),
    'behind an entity of HTML': body(`<a href="/a?x=1&amp;token=${SECRET}">`, 'text/html'),
    'in JSON in a form, cut off': body(`x=${encode(`{"token":"a&${SECRET}`)}`, FORM),
    'in JSON in a query': redactor.path(`/?x=${encode(`{"password":"a&b=${SECRET}"}`)}`),
    'in JSON in a query, not encoded': redactor.path(`/?x={"password":"a&b=${SECRET}"}`),
    'behind a sign that is not encoded': redactor.path(`/?%3Ftoken%3Dabc=${SECRET}`),
    'behind a % that encodes nothing': redactor.path(`/?next=/x%?token=a ${SECRET}`),
    'in a sentence': body(`It says password=${SECRET}, and no more`),
    'encoded ten times': redactor.path(
      `/?next=${Array.from({ length: 10 }).reduce<string>(encode, `/a?token=${SECRET}`)}`,
    ),
  }
  it.each(Object.entries(cases))('%s is hidden', (_, shown) => {
    expect(shown).toContain('[redacted')
    expect([reveals(shown, SECRET), reveals(shown, BASIC)]).toEqual([false, false])
  })

  it('is hidden beside half of a character, which has no encoding', () => {
    expect(body('{"u":"?a=\\ud800%3Ftoken%3Dx"}')).toMatch(/^{"u":"\?a=%uD800%3Ftoken%3D\[redacted:\w+\]"}$/)
  })
})

describe('what is no secret', () => {
  it.each([
    '/a%20b?x=%2F+&y&=z;q',
    '/oauth/token?grant_type=client_credentials&scope=a+b',
    '/code/x?filter[name]=x&sort=-date;up',
    '/?q=%E2%82%AC+100%25&next=https%3A%2F%2Fh.example%2F%3Fa%3D1%26b%3D2%23top',
    '/?max_tokens=5&keys=a,b&status=code%3A5&broken=%zz&data=%7B%22a%22%3A%5B1%2C2%5D%7D',
    '/;v=1/b;c=d',
  ])('stays as it is in the path %s', path => {
    expect(redactor.path(path)).toBe(path)
  })

  it.each([
    ['user-agent', 'Mozilla/5.0 (X11; Linux; rv:1)'],
    ['link', '<https://h.example/a?page=2>; rel="next", <https://h.example/a?page=9>; rel="last"'],
    ['content-security-policy', "default-src 'self'; script-src https://a.example"],
    ['cache-control', 'max-age=5, private'],
    ['if-none-match', 'W/"abc=="'],
    ['content-disposition', 'attachment; filename="a=b.txt"'],
    ['www-authenticate', 'Basic realm="a place", charset="UTF-8"'],
  ])('stays as it is in %s', (name, value) => {
    expect(field(name, value)).toBe(value)
  })

  it.each([
    ['text/javascript', 'if (token === undefined) state = next(state); let code=read(a%2), key = map[i]'],
    ['text/plain', 'He uses basic authentication: 5 tokens, 100% of them. See //h.example/a@b\n'],
    ['text/css', 'a{width:50%;color:red}'],
    ['text/html', '<input type="password" name="a" value="" data-token="" code="5" placeholder=\'Password\'>'],
    ['text/javascript', 'go("/?token=" + a + "&state=" + b, "password=", "c") && (d == "token")'],
    ['application/json', '{"prompt":"Enter your password: ","next":"Token = \'","last":"x"}'],
    ['application/json', '{"message":"exit code=1: a file is missing","tokens":5,"a b":"c=d; e=f"}'],
    [FORM, 'text=a+few+words;+and+more&to=https%3A%2F%2Fh.example%2F%3Fpage%3D1\r\n'],
  ])('stays as it is in %s', (type, text) => {
    expect(body(text, type)).toBe(text)
  })

  it('is shown beside a secret', () => {
    const shown = redactor
      .path('/p;v=1/q;token=x/r?page=2&next=%2Fb%3Fq%3D%C3%BC%26code%3Dx+y&z=1')
      .replaceAll(/:\w+]/g, ']')
    expect(shown).toBe('/p;v=1/q;token=[redacted]?page=2&next=/b%3Fq%3D%C3%BC%26code%3D[redacted]&z=1')
    expect(body('a="b" password="x y" c="d", e=\'f\'').replace(/:\w+]/, ']')).toBe(
      'a="b" password="[redacted]" c="d", e=\'f\'',
    )
    const link = field(
      'link',
      '<https://h.example/a?page=2&token=x>; rel="next", <https://h.example/a?page=9>; rel="last"',
    )
    expect(link.replace(/:\w+]/, ']')).toBe(
      '<https://h.example/a?page=2&token=[redacted]>; rel="next", <https://h.example/a?page=9>; rel="last"',
    )
  })
})
