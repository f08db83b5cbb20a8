/** `tracestate`: data that others on the way want to find again. We add nothing to it. */

const MAX_MEMBERS = 32
/** This many characters must be passed on. From a longer list, members are removed: first those over {@link LONG_CHARS}, then the last. */
const MAX_CHARS = 512
const LONG_CHARS = 128

const MEMBER =
  /^((?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}))=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/

/** `state` to pass on: unchanged, or shortened if it is too long. Undefined if it breaks the rules: then it is dropped completely. */
export function fittingState(state: string): string | undefined {
  const members = state.split(',')
  const keys: string[] = []
  for (let i = 0; i < members.length; i++) {
    const member = members[i]!.trim()
    members[i] = member
    // Lists may have empty members.
    if (member === '') continue
    const key = MEMBER.exec(member)?.[1]
    if (key === undefined || keys.length === MAX_MEMBERS || keys.includes(key)) return undefined
    keys.push(key)
  }
  if (keys.length === 0) return undefined
  return state.length <= MAX_CHARS ? state : shortened(members.filter(member => member !== ''))
}

function shortened(members: string[]): string | undefined {
  const left = [...members]
  const chars = () => left.reduce((sum, member) => sum + member.length + 1, -1)
  while (chars() > MAX_CHARS) {
    const long = left.findLastIndex(member => member.length > LONG_CHARS)
    left.splice(long < 0 ? left.length - 1 : long, 1)
  }
  return left.length === 0 ? undefined : left.join(',')
}
