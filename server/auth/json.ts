/** Parses the JSON of a token. Duplicate names are refused, since parsers differ in which one they use. */
import { isRecord } from '../../protocol/base/is-record.ts'

/** Parses `text`. `undefined` unless it is an object whose member names are unique at every depth. */
export function parseUniqueObject(text: string): Record<string, unknown> | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  return isRecord(value) && countMembers(value) === countColons(text) ? value : undefined
}

/** Members that survived parsing, at every depth. */
function countMembers(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  let count = Array.isArray(value) ? 0 : Object.keys(value).length
  for (const one of Object.values(value)) count += countMembers(one)
  return count
}

/** Members in the text: colons outside of strings. The text must be valid JSON. */
function countColons(text: string): number {
  let count = 0
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (inString) {
      if (c === 0x5c) i++
      else if (c === 0x22) inString = false
    } else if (c === 0x22) inString = true
    else if (c === 0x3a) count++
  }
  return count
}
