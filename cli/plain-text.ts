/** Replaces control characters of all kinds: text from others must not control the terminal or reverse the text around it. */
export function plainText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e\u00a0-\uffff]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '?')
}

/** The same for text of several lines, which stay apart. */
export function plainLines(text: string): string {
  return text.split('\n').map(plainText).join('\n')
}

/** JSON without characters that control a terminal. */
export function terminalJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).replaceAll(
    /[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
