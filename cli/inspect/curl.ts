/** An exchange as a curl command for a POSIX shell. The reader has to fill in what was redacted. */
import type { InspectedDetail } from '../../client/index.ts'
import { plainText } from '../plain-text.ts'

/** Fields that curl sets itself, or that belong to the connection. */
const OWN = new Set(['content-length', 'host', 'content-encoding', 'expect', 'transfer-encoding', 'connection'])

export function curlOf({ method, scheme, host, path, request }: InspectedDetail): string {
  const { headers, body } = request
  const isBinary = body?.base64 !== undefined
  const data = isBinary ? ['--data-binary @-'] : body?.text === undefined ? [] : [`--data-raw ${quoted(body.text)}`]
  const fields = headers.filter(([name]) => !OWN.has(name) && !/^(?:sallyport|x-forwarded)-/.test(name))
  // With `-X HEAD`, curl would wait for a body.
  const how = method === 'HEAD' && data.length === 0 ? '--head' : `-X ${quoted(method)}`
  const words = [
    // Keeps curl from interpreting anything in the path.
    `curl --globoff --path-as-is ${how} ${quoted(`${scheme}://${host}${path}`)}`,
    ...fields.map(([name, value]) => `-H ${quoted(value === '' ? `${name};` : `${name}: ${value}`)}`),
    ...data,
  ]
  const command = words.join(' \\\n  ')
  const why = body?.omitted ?? (body?.truncated === true ? 'only its beginning was kept' : undefined)
  const comment = why === undefined ? '' : `# The body is not complete: ${plainText(why)}\n`
  return comment + (isBinary ? `printf %s ${quoted(body.base64!)} | base64 -d | ${command}\n` : `${command}\n`)
}

/** One word for the shell, without characters that control a terminal. */
function quoted(text: string): string {
  if (plainText(text) === text) return `'${text.replaceAll("'", `'\\''`)}'`
  const escaped = Array.from(text, char => {
    if (char === "'" || char === '\\') return `\\${char}`
    if (plainText(char) === char) return char
    return Array.from(Buffer.from(char), byte => `\\${byte.toString(8).padStart(3, '0')}`).join('')
  })
  return `$'${escaped.join('')}'`
}
