import { nearest } from '../protocol/base/nearest.ts'

/** `; did you mean X?`, or an empty string. */
export function suggestion(word: string, candidates: Iterable<string>, prefix = ''): string {
  const match = nearest(word, candidates)
  return match === undefined ? '' : `; did you mean ${prefix}${match}?`
}
