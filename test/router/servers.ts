import { isUtf8 } from 'node:buffer'

/** How servers read a path, each written down for itself: the decoded segments that the server matches on, or undefined if it refuses. */
type Reading = (path: string) => string[] | undefined

export const decode = (text: string): string =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
/** As nginx sends on what it has decoded. */
const escaped = (text: string): string =>
  text.replace(/[^\x21-\x7e]|[%?#]/g, sign => `%${sign.charCodeAt(0).toString(16).padStart(2, '0')}`)
const merge = (path: string): string => path.replace(/\/+/g, '/')
const withoutParameters = (path: string): string => path.replace(/;[^/]*/g, '')
const split = (path: string): string[] => path.slice(1).split('/')

/** Resolves dot segments. */
function resolved(path: string): string {
  const kept: string[] = []
  const segments = split(path)
  for (const segment of segments) {
    if (segment === '..') kept.pop()
    else if (segment !== '.') kept.push(segment)
  }
  if (/^\.{1,2}$/.test(segments.at(-1)!)) kept.push('')
  return `/${kept.join('/')}`
}

/** Any two characters are digits to it: `convertHexDigit`. */
const digit = (sign: number): number => (sign & 0x1f) + (sign >> 6) * 0x19 - 0x10
const decodeAsJetty = (text: string): string =>
  text.replace(/%(..)/gs, (_, [high, low]: string) =>
    String.fromCharCode((digit(high!.charCodeAt(0)) * 16 + digit(low!.charCodeAt(0))) & 0xff),
  )
const utf8OrLatin1 = (text: string): string =>
  isUtf8(Buffer.from(text, 'latin1')) ? text : Buffer.from(text).toString('latin1')

const node = (path: string): string | undefined => URL.parse(path, 'http://node.test')?.pathname

/** `encoded` slashes stay part of their segment, if the server is set up like that. */
export const SERVERS: Readonly<Record<string, Reading>> = {
  tomcat: path => split(resolved(merge(decode(withoutParameters(path))))),
  'tomcat, encoded': path => split(resolved(merge(withoutParameters(path)))).map(decode),
  'tomcat, spring without parameters': path => split(merge(withoutParameters(decode(withoutParameters(path))))),
  jetty: path => split(resolved(decode(withoutParameters(path)))),
  'jetty, encoded': path => split(resolved(withoutParameters(path))).map(decode),
  'jetty 9, Latin-1': path => split(resolved(utf8OrLatin1(decodeAsJetty(withoutParameters(path))))),
  'asp.net': path => split(decode(path).replace(/\/\((?:[A-Z]\([^()/]*\))+\)(?=\/|$)/g, '')),
  mojolicious: path =>
    split(decode(path)).filter((segment, i, all) => i === all.length - 1 || !['', '...'].includes(segment)),
  civetweb: path => split(resolved(merge(decode(path)))).filter(segment => !/^\.{3,}$/.test(segment)),
  undertow: path => split(decode(withoutParameters(path))),
  nginx: path => split(resolved(merge(decode(path)))),
  'nginx, merge_slashes off': path => split(resolved(decode(path))),
  apache: path => split(decode(resolved(merge(path)))),
  'apache, encoded': path => split(resolved(merge(path))).map(decode),
  'apache, encoded, MergeSlashes off': path => split(resolved(path)).map(decode),
  'apache before tomcat': path => split(resolved(merge(decode(withoutParameters(merge(path)))))),
  'go, Path': path => split(decode(path)),
  'go, ServeMux': path => split(resolved(merge(decode(path)))),
  'go, EscapedPath': path => split(path).map(decode),
  'go, chi': path => split(path),
  'node, new URL': path => split(node(path) ?? '/'),
  'node, new URL, decoded': path => split(decode(node(path) ?? '/')),
  'fastify 4': path => split(path.replace(/;.*/s, '')).map(decode),
  'nginx, merge_slashes off, then node': path =>
    node(escaped(resolved(decode(path))))
      ?.slice(1)
      .split('/')
      .map(decode),
  'undertow, URI': path => split(decode(withoutParameters(path)).replace(/^\/\/[^/]*/, '')),
  'jetty, URI': path => split(resolved(decode(withoutParameters(path))).replace(/^\/\/[^/]*/, '')),
  'nginx, $uri passed on': path => split(resolved(merge(decode(path))).replace(/[?#].*/s, '')),
  express: path => split(path),
  axum: path => split(path),
  'fastify 5': path => split(path).map(decode),
  starlette: path => split(decode(path).replace(/\n$/, '')),
  'java, $ in a pattern': path => split(decode(path).replace(/(?:\r\n|[\r\n])$/, '')),
  bottle: path => split(Buffer.from(decode(path), 'latin1').toString().replaceAll('\ufffd', '')),
  'python, wsgi': path => split(decode(path)),
  'python, urlsplit': path => split(decode(path.replace(/^\/\/[^/]*/, ''))),
  'python, urlparse': path => split(decode(path.replace(/^\/\/[^/]*/, '').replace(/;[^/]*$/, ''))),
  'python, http.server': path => split(resolved(decode(path.replace(/^\/+/, '/')))),
  'parameters after decoding': path => split(merge(withoutParameters(decode(path)))),
  'parameters after splitting': path => split(withoutParameters(path.replace(/%2f/gi, '/'))).map(decode),
  'decoded twice': path => split(resolved(decode(decode(path)))),
  'decoded by nginx, then by tomcat': path => split(resolved(merge(decode(withoutParameters(merge(decode(path))))))),
}

/** Servers that compare segments as they came, and then decode names. */
export const DECODE_NAMES: ReadonlySet<string> = new Set(['go, chi', 'node, new URL', 'express', 'axum'])

/** Servers that take an empty segment for a name; Fastify does so at the end, too. */
export const EMPTY_NAMES: ReadonlySet<string> = new Set(['go, chi', 'axum', 'fastify 4', 'fastify 5'])

/** Fields of a request, by their names in lower case. */
type Fields = ReadonlyMap<string, string>

/** As CGI names them. lighttpd does that to every sign. */
const cgi = (fields: Fields): Fields =>
  new Map([...fields].map(([name, value]) => [name.toUpperCase().replace(/[^A-Z0-9]/g, '_'), value]))
const below = (path: string, mount = ''): string => (path.startsWith(mount) ? path.slice(mount.length) : path)

interface Mounted {
  /** Fields with which `/pub/secret` is another path. */
  readonly forged: readonly string[]
  readonly runs: (path: string, fields: Fields) => string
}

/** Servers that take from a field where they are mounted, or which path was asked for: the path that they run. */
export const MOUNTED: Readonly<Record<string, Mounted>> = {
  gunicorn: {
    forged: ['SCRIPT_NAME: /pub', 'script_name: /pub'],
    runs: (path, fields) => below(path, fields.get('script_name')),
  },
  daphne: {
    forged: ['Daphne-Root-Path: /pub', 'daphne-root-path: /pub'],
    runs: (path, fields) => below(path, fields.get('daphne-root-path')),
  },
  'pyramid, traversal': {
    forged: ['X-Vhm-Root: /secret', 'X_Vhm_Root: /secret'],
    runs: (path, fields) => `${cgi(fields).get('X_VHM_ROOT') ?? ''}${path}`,
  },
  'flask, X-Script-Name': {
    forged: ['X-Script-Name: /pub', 'X_SCRIPT_NAME: /pub'],
    runs: (path, fields) => below(path, cgi(fields).get('X_SCRIPT_NAME')),
  },
  'lighttpd, then symfony': {
    forged: ['X-Original-URL: /secret', 'x!original~url: /secret', 'X.Rewrite+URL: /secret'],
    runs: (path, fields) => cgi(fields).get('X_ORIGINAL_URL') ?? cgi(fields).get('X_REWRITE_URL') ?? path,
  },
}
