/** What somebody else wrote must not steer the terminal, or turn the text around it: control characters of all kinds. */
export function plainText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e\u00a0-\uffff]|[\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '?')
}
