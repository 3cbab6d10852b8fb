"""What programs show beside plain text is read: charts, diagrams, numbers of lists, formulas, spans and tables."""

from __future__ import annotations

import pytest

from ragembed.documents.readers import ReadOptions, package, read, spreadsheet, structure
from ragembed.documents.readers.numbering import numeral
from ragembed.errors import DocumentError
from tests.documents.office_files import make_docx, make_odf, make_pptx, make_xlsx, paragraph, row_of


def blocks(name: str, data: bytes | str, options: ReadOptions | None = None) -> list[str]:
    """Return the texts of all blocks of a file."""
    content = data.encode() if isinstance(data, str) else data
    documents = read(name, content, options or ReadOptions())
    return [document.text[block.start : block.end] for document in documents for block in document.blocks]


def point(name: str, text: str) -> str:
    return f'<dgm:pt modelId="{name}"><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>'


def link(above: str, below: str, order: int) -> str:
    return f'<dgm:cxn srcId="{above}" destId="{below}" srcOrd="{order}"/>'


def column(tag: str, kind: str, *texts: str, code: str = "") -> str:
    points = "".join(f'<c:pt idx="{at}"><c:v>{text}</c:v></c:pt>' for at, text in enumerate(texts))
    return f"<c:{tag}><c:{kind}><c:formatCode>{code}</c:formatCode>{points}</c:{kind}></c:{tag}>"


DIAGRAM = (
    f'<dgm:dataModel><dgm:ptLst><dgm:pt modelId="0" type="doc"/>{point("3", "Mechanic")}{point("1", "Head")}'
    f"{point('2', 'Foreman')}</dgm:ptLst><dgm:cxnLst>{link('0', '1', 0)}{link('1', '3', 1)}{link('1', '2', 0)}"
    f"{link('3', '1', 0)}</dgm:cxnLst></dgm:dataModel>"
)
TREE = "- Head\n  - Foreman\n  - Mechanic"
CHART = (
    "<c:chartSpace><c:title><c:rich><a:p><a:r><a:t>Rain</a:t></a:r></a:p></c:rich></c:title>"
    f"<c:ser>{column('tx', 'strCache', 'North')}{column('cat', 'numCache', '45292', '45323', code='mmm yy')}"
    f"{column('val', 'numCache', '0.30000000000000004', '12')}</c:ser>"
    f"<c:ser>{column('tx', 'strCache', 'South')}{column('cat', 'numCache', '45292', '45323', code='mmm yy')}"
    f"{column('val', 'numCache', '7')}</c:ser></c:chartSpace>"
)
TABLE = "Rain\nNorth | South\n2024-01-01 | 0.3 | 7\n2024-02-01 | 12"
LEVELS = (
    "<c:chartSpace><c:ser><c:cat><c:multiLvlStrCache><c:lvl><c:pt idx='0'><c:v>Q1</c:v></c:pt><c:pt idx='1'><c:v>Q2"
    "</c:v></c:pt></c:lvl><c:lvl><c:pt idx='0'><c:v>2023</c:v></c:pt></c:lvl></c:multiLvlStrCache></c:cat>"
    f"{column('val', 'numCache', '1', '2')}</c:ser></c:chartSpace>"
)
LINKED = (
    f"<c:chartSpace><c:title>{column('tx', 'strCache', 'From a cell')}</c:title><c:ser>"
    f"{column('xVal', 'numCache', '1')}{column('yVal', 'numCache', '2')}{column('bubbleSize', 'numCache', '3')}"
    "</c:ser></c:chartSpace>"
)
WATERFALL = (
    "<cx:chartSpace><cx:title><cx:v>Budget</cx:v></cx:title><cx:data><cx:strDim><cx:lvl><cx:pt idx='0'>Rent</cx:pt>"
    "</cx:lvl></cx:strDim><cx:numDim><cx:lvl formatCode='General'><cx:pt idx='0'>-5.0</cx:pt></cx:lvl></cx:numDim>"
    "</cx:data></cx:chartSpace>"
)
GRAPHICS = [
    ("<dgm:relIds r:dm='diagramData'/>", {"diagramData": DIAGRAM}, TREE),
    ("<c:chart r:id='chart'/>", {"chart": CHART}, TABLE),
    ("<c:chart r:id='chart'/>", {"chart": LEVELS}, "2023 Q1 | 1\n2023 Q2 | 2"),
    ("<c:chart r:id='chart'/>", {"chart": LINKED}, "From a cell\n1 | 2 | 3"),
    ("<cx:chart r:id='chartEx'/>", {"chartEx": WATERFALL}, "Budget\nRent | -5"),
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("graphic", "parts", "expected"), GRAPHICS)
def test_charts_and_diagrams_are_read_in_all_formats(
    graphic: str, parts: dict[str, str], expected: str, strict: bool
) -> None:
    body = f'<w:p><w:r><w:t>above</w:t><w:drawing><wp:docPr descr="A delta"/>{graphic}</w:drawing></w:r></w:p>'
    assert blocks("a.docx", make_docx(body, strict=strict, **parts)) == ["above", "Picture: A delta", expected]
    shape = f'<p:graphicFrame><p:cNvPr descr="A delta"/>{graphic}</p:graphicFrame>'
    assert blocks("a.pptx", make_pptx(shape, strict=strict, **parts)) == ["Picture: A delta", expected]


def test_drawings_of_a_sheet_are_read_with_their_row() -> None:
    box = "<xdr:sp><xdr:txBody><a:p><a:r><a:t>Mind the gap</a:t></a:r></a:p></xdr:txBody></xdr:sp>"
    picture = "<xdr:pic><xdr:cNvPr descr='C:/map.png'/></xdr:pic><xdr:pic><xdr:cNvPr title='Map'/></xdr:pic>"
    anchor = f"<xdr:twoCellAnchor><xdr:from><xdr:row>6</xdr:row></xdr:from>{box}{picture}</xdr:twoCellAnchor>"
    chart = f"<xdr:oneCellAnchor><xdr:graphicFrame>{GRAPHICS[1][0]}</xdr:graphicFrame></xdr:oneCellAnchor>"
    data = make_xlsx("", parts={"drawing": f"<xdr:wsDr>{anchor}{chart}</xdr:wsDr>"})
    assert blocks("a.xlsx", data) == ["Mind the gap", "Picture: Map"]
    (document,) = read("a.xlsx", data)
    assert (document.line_numbers or [])[0] == 7


CONTROL = f"<w:sdt><w:sdtPr><w:text/></w:sdtPr><w:sdtContent>{paragraph('title')}</w:sdtContent></w:sdt>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ((f"<w:p><w:r><w:pict><v:textbox><w:txbxContent>{CONTROL}{paragraph('x')}</w:txbxContent></v:textbox></w:pict>"
         "</w:r></w:p>"), ["title", "x"]),
        (f"<w:p><w:r><w:txbxContent><w:tbl><w:tr><w:tc>{CONTROL}</w:tc></w:tr></w:tbl></w:txbxContent></w:r></w:p>"
         + paragraph("after"), ["title", "after"]),
        ("<w:p><w:r><w:pict><v:shape alt='a map'/></w:pict></w:r></w:p>", ["Picture: a map"]),
        (("<w:p><mc:AlternateContent><mc:Choice><w:r><w:t>new</w:t></w:r></mc:Choice><mc:Choice><w:r><w:t>other</w:t>"
         "</w:r></mc:Choice><mc:Fallback><w:r><w:t>o</w:t></w:r></mc:Fallback></mc:AlternateContent></w:p>"), ["new"]),
        ("<w:p><w:r><unknown:t>no text of Word</unknown:t><w:t>text</w:t></w:r></w:p>", ["text"]),
    ],
)  # fmt: skip
def test_boxes_controls_and_alternatives_of_word(body: str, expected: list[str]) -> None:
    assert blocks("a.docx", make_docx(body)) == expected


@pytest.mark.parametrize(
    ("imported", "expected"),
    [
        (b"<html><h1>Head</h1><p>from HTML</p></html>", ["Head", "from HTML"]),
        (rb"{\rtf1 from RTF}", ["from RTF"]),
        (make_docx(paragraph("inner")), ["inner"]),
        (make_docx('<w:altChunk r:id="aFChunk"/>' + paragraph("x"), aFChunk=make_docx(paragraph("deeper"))), ["x"]),
        (b"", []),
    ],
)
def test_imported_parts_of_word(imported: bytes, expected: list[str]) -> None:
    data = make_docx(paragraph("a") + '<w:altChunk r:id="aFChunk"/>' + paragraph("b"), aFChunk=imported)
    assert blocks("a.docx", data) == ["a", *expected, "b"]


def numbered(number: int, level: int, text: str = "x", style: str = "") -> str:
    style = f'<w:pStyle w:val="{style}"/>' if style else ""
    properties = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>' if number else ""
    return f"<w:p><w:pPr>{style}{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def level(at: int, kind: str, text: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{at}"><w:numFmt w:val="{kind}"/><w:lvlText w:val="{text}"/>{more}</w:lvl>'


NUMBERING = f"""<w:numbering>
<w:abstractNum w:abstractNumId="0">{level(0, "decimal", "%1.")}{level(1, "decimal", "%1.%2")}
{level(2, "lowerLetter", "(%3)", '<w:lvlRestart w:val="1"/>')}{level(3, "lowerRoman", "%4)")}</w:abstractNum>
<w:abstractNum w:abstractNumId="1">{level(0, "upperRoman", "Article %1", '<w:pStyle w:val="Art"/>')}
{level(1, "decimal", "§ %1.%2 ", '<w:isLgl/><w:pStyle w:val="Par"/><w:suff w:val="nothing"/>')}</w:abstractNum>
<w:abstractNum w:abstractNumId="2">{level(0, "bullet", "•")}{level(1, "none", "")}</w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="0"/>
<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="1"/></w:num><w:num w:numId="4"><w:abstractNumId w:val="2"/></w:num>
</w:numbering>"""
STYLES = """<w:styles><w:style w:styleId="Art"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr>
</w:pPr></w:style><w:style w:styleId="Par"><w:name w:val="Clause"/><w:basedOn w:val="Art"/><w:pPr><w:outlineLvl
w:val="9"/></w:pPr></w:style><w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="Par"/></w:style>
</w:styles>"""


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([(1, 0), (1, 1), (1, 1), (1, 0), (1, 1)], ["1. x", "1.1 x", "1.2 x", "2. x", "2.1 x"]),
        ([(1, 1), (1, 0)], ["1.1 x", "1. x"]),
        # Level 3 begins again only after level 1, and lists of one definition count together.
        ([(1, 0), (1, 2), (1, 1), (1, 2), (1, 3), (1, 0), (1, 2)],
         ["1. x", "(a) x", "1.1 x", "(b) x", "i) x", "2. x", "(a) x"]),
        ([(1, 0), (2, 0), (2, 0), (1, 0)], ["1. x", "5. x", "6. x", "7. x"]),
        ([(4, 0), (4, 1), (9, 0), (0, 0)], ["- x", "x", "- x", "x"]),
    ],
)  # fmt: skip
def test_numbers_of_lists_in_word(levels: list[tuple[int, int]], expected: list[str]) -> None:
    body = "".join(numbered(number, at) for number, at in levels)
    assert blocks("a.docx", make_docx(body, numbering=NUMBERING)) == expected


def test_numbers_of_styles_headings_and_cells_in_word() -> None:
    clauses = "".join(numbered(0, 0, style, style) for style in ("Art", "Par", "Own", "Art"))
    deleted = numbered(1, 0).replace("</w:pPr>", "<w:rPr><w:del/></w:rPr></w:pPr>").replace("w:t>", "w:delText>")
    rows = "".join(f"<w:tr><w:tc>{numbered(1, 0, '')}</w:tc><w:tc>{paragraph('y')}</w:tc></w:tr>" for _ in "ab")
    data = make_docx(f"{clauses}{deleted}<w:tbl>{rows}</w:tbl>", numbering=NUMBERING, styles=STYLES)
    assert blocks("a.docx", data) == ["Article I Art", "§ 1.1Par", "§ 1.2Own", "Article II Art", "1. | y\n2. | y"]
    (document,) = read("a.docx", data)
    assert document.blocks[1].headings == ("Article I Art",)


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        ("upperRoman", 1994, "1994"), ("lowerRoman", 49, "xlix"), ("upperLetter", 28, "BB"), ("decimalZero", 7, "07"),
        ("ordinal", 12, "12th"), ("ordinal", 23, "23rd"), ("chineseCounting", 21, "二十一"),
        ("koreanCounting", 13, "십삼"),
        ("hebrew1", 16, "טז"), ("russianLower", 3, "в"), ("thaiNumbers", 40, "๔๐"), ("decimalEnclosedCircle", 3, "③"),
        ("none", 5, ""), ("unknown", 5, "5"), ("lowerLetter", 2_000_000, "2000000"), ("lowerLetter", -1, "-1"),
    ],
)  # fmt: skip
def test_numerals(kind: str, number: int, expected: str) -> None:
    assert numeral(kind, number) == expected


def test_numbers_of_lists_in_slides_html_and_rtf() -> None:
    def item(kind: str, text: str, more: str = "") -> str:
        return f'<a:p><a:pPr {more}><a:buAutoNum type="{kind}"/></a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>'

    items = item("alphaLcParenR", "x") + item("arabicPeriod", "in", 'lvl="1"') + item("alphaLcParenR", "y")
    shape = f"<p:sp><p:txBody>{items}<a:p><a:r><a:t>z</a:t></a:r></a:p>{item('romanUcPeriod', 'new')}</p:txBody></p:sp>"
    assert blocks("a.pptx", make_pptx(shape)) == ["a) x\n1. in\nb) y\nz\nI. new"]
    page = "<ol start=4 type=A><li>x<li value=9>y<li>z</ol><p>-"
    page += "<ol style='list-style-type: lower-roman' reversed start=2><li>x<li>y</ol>"
    assert blocks("a.html", page) == ["D. x\nI. y\nJ. z", "-", "ii. x\ni. y"]
    listed = rb"{\rtf1 {\listtext\pard 2.1\tab}\pard\ls1 Clause\par\pard text\par{\pntext\'b7\tab}\pard point}"
    assert blocks("a.rtf", listed) == ["2.1 Clause", "text", "- point"]


OMML_FRACTION = "<m:f><m:num><m:r><m:t>{}</m:t></m:r></m:num><m:den><m:r><m:t>{}</m:t></m:r></m:den></m:f>"
MATHML_FRACTION = "<mfrac><mi>{}</mi><mrow>{}</mrow></mfrac>"


@pytest.mark.parametrize(
    ("omml", "mathml", "expected"),
    [
        (OMML_FRACTION.format("F", "A"), MATHML_FRACTION.format("F", "<mi>A</mi>"), "F/A"),
        (OMML_FRACTION.format("1", "a+b"), MATHML_FRACTION.format("1", "<mi>a</mi><mo>+</mo><mi>b</mi>"), "1/(a+b)"),
        ("<m:r><m:t>2</m:t></m:r>" + OMML_FRACTION.format("1", "4"),
         "<mn>2</mn>" + MATHML_FRACTION.format("1", "<mn>4</mn>"), "2 1/4"),
        ("<m:rad><m:deg/><m:e><m:r><m:t>k</m:t></m:r></m:e></m:rad>", "<msqrt><mi>k</mi></msqrt>", "sqrt(k)"),
        ("<m:rad><m:deg><m:r><m:t>3</m:t></m:r></m:deg><m:e><m:r><m:t>8</m:t></m:r></m:e></m:rad>",
         "<mroot><mn>8</mn><mn>3</mn></mroot>", "root(3, 8)"),
        ("<m:sSup><m:e><m:r><m:t>10</m:t></m:r></m:e><m:sup><m:r><m:t>-3</m:t></m:r></m:sup></m:sSup>",
         "<msup><mn>10</mn><mn>-3</mn></msup>", "10^-3"),
        (("<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub><m:r><m:t>i=1</m:t></m:r></m:sub><m:sup><m:r><m:t>n"
         "</m:t></m:r></m:sup><m:e><m:sSub><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sub><m:r><m:t>i</m:t></m:r></m:sub>"
         "</m:sSub></m:e></m:nary>"),
         ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mo> </mo><msub>"
         "<mi>x</mi><mi>i</mi></msub>"), "∑_(i=1)^n x_i"),
        ("<m:d><m:dPr><m:begChr m:val='['/><m:endChr m:val=']'/></m:dPr><m:e><m:r><m:t>a</m:t></m:r></m:e></m:d>",
         "<mfenced open='[' close=']'><mi>a</mi></mfenced>", "[a]"),
        ("<m:m><m:mr><m:e><m:r><m:t>1</m:t></m:r></m:e><m:e><m:r><m:t>0</m:t></m:r></m:e></m:mr></m:m>",
         "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr></mtable>", "1, 0"),
    ],
)  # fmt: skip
def test_formulas_are_read_as_text(omml: str, mathml: str, expected: str) -> None:
    text = f"<w:p><w:r><w:t>so </w:t></w:r><m:oMath>{omml}</m:oMath></w:p>"
    assert blocks("a.docx", make_docx(text)) == [f"so {expected}"]
    assert blocks("b.docx", make_docx(f"<m:oMathPara><m:oMath>{omml}</m:oMath></m:oMathPara>")) == [expected]
    marked = f"<math><semantics><mrow>{mathml}</mrow><annotation>tex</annotation></semantics></math>"
    assert blocks("a.html", f"<p>so {marked}<p>end of it") == [f"so {expected}", "end of it"]
    article = (
        f"<article><p>so <mml:math>{mathml.replace('<', '<mml:').replace('<mml:/', '</mml:')}</mml:math></p></article>"
    )
    assert blocks("a.xml", article) == [f"so {expected}"]
    framed = "<text:p>so <draw:frame><draw:object xlink:href='./Object 1/'/></draw:frame></text:p>"
    named = mathml.replace("<", "<math:").replace("<math:/", "</math:")
    data = make_odf("text", framed, **{"Object 1": f"<math:math>{named}</math:math>"})
    assert [" ".join(text.split()) for text in blocks("a.odt", data)] == [f"so {expected}"]


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("10<sup>6</sup> Pa", "10^6 Pa"), ("10<sup>-3</sup>m", "10^-3 m"), ("x<sup>n+1</sup>", "x^(n+1)"),
        ("H<sub>2</sub>O", "H2O"), ("1010<sub>2</sub>", "1010_2"), ("log<sub>10</sub>2", "log_10 2"),
        ("3<sup>1</sup>/<sub>2</sub> cups", "3 1/2 cups"), ("1<sup>st</sup>", "1st"),
        ("in 2019<sup>4</sup>", "in 2019^4"),
        ("so<sup>[2]</sup>", "so[2]"), ("a<sup>1</sup><sup>2</sup>", "a^12"), ("e<sup>x<sup>2</sup></sup>", "e^(x^2)"),
        ("<sup>1</sup> A note", "1 A note"), ("SO<sub>4</sub><sup>2−</sup>", "SO4^2−"), ("open <sup>end", "open end"),
    ],
)  # fmt: skip
def test_raised_and_lowered_text_keeps_its_meaning(marked: str, expected: str) -> None:
    assert blocks("a.html", f"<p>{marked}</p>") == [expected]
    if "</sup></sup>" in marked or "end" in marked:
        return
    runs = marked
    for tag, kind in (("sup", "superscript"), ("sub", "subscript")):
        properties = f"</w:t></w:r><w:r><w:rPr><w:vertAlign w:val='{kind}'/></w:rPr><w:t>"
        runs = runs.replace(f"<{tag}>", properties).replace(f"</{tag}>", "</w:t></w:r><w:r><w:t>")
    assert blocks("a.docx", make_docx(f"<w:p><w:r><w:t>{runs}</w:t></w:r></w:p>")) == [expected]
    runs = marked.replace("<sup>", "</a:t></a:r><a:r><a:rPr baseline='30000'/><a:t>")
    runs = runs.replace("<sub>", "</a:t></a:r><a:r><a:rPr baseline='-25000'/><a:t>")
    runs = runs.replace("</sup>", "</a:t></a:r><a:r><a:t>").replace("</sub>", "</a:t></a:r><a:r><a:t>")
    shape = f"<p:sp><p:txBody><a:p><a:r><a:t>{runs}</a:t></a:r></a:p></p:txBody></p:sp>"
    assert blocks("a.pptx", make_pptx(shape)) == [expected]
    spans = marked.replace("<sup>", "<text:span text:style-name='up'>").replace("</sup>", "</text:span>")
    spans = spans.replace("<sub>", "<text:span text:style-name='down'>").replace("</sub>", "</text:span>")
    styles = "".join(
        f"<style:style style:name='{name}'><style:text-properties style:text-position='{position} 58%'/></style:style>"
        for name, position in (("up", "super"), ("down", "-10%"))
    )
    assert blocks("a.odt", make_odf("text", f"<text:p>{spans}</text:p>", styles)) == [expected]
    plain = marked.replace("−", r"\u8722?").replace("<sup>", r"{\super ").replace("<sub>", r"{\sub ")
    assert blocks("a.rtf", rf"{{\rtf1 {plain.replace('</sup>', '}').replace('</sub>', '}')}}}") == [expected]


def test_cells_that_span_rows_and_columns() -> None:
    expected = ["Plant | 2023 | 2023\nPlant | Q1 | Q2\nMill | 1 | 2\nMill | 3\nTotal | 4"]
    page = (
        "<table><tr><th rowspan=2>Plant<th colspan=2>2023<tr><th>Q1<th>Q2<tr><td rowspan=2>Mill<td>1<td>2"
        "<tr><td colspan=2>3<tr><td colspan=2>Total<td>4</table>"
    )
    assert blocks("a.html", page) == expected


def cell(prefix: str, text: str, columns: int = 1, rows: int = 1) -> str:
    """Return a cell of a slide (``a``) or of OpenDocument (``table``), with the cells that it covers beside it."""
    if prefix == "a":
        inside = f"<a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody>"
        return f"<a:tc gridSpan='{columns}' rowSpan='{rows}'>{inside}</a:tc>" + "<a:tc hMerge='1'/>" * (columns - 1)
    spans = f"table:number-columns-spanned='{columns}' table:number-rows-spanned='{rows}'"
    covered = "<table:covered-table-cell/>" * (columns - 1)
    return f"<table:table-cell {spans}><text:p>{text}</text:p></table:table-cell>{covered}"


def test_spans_in_slides_and_opendocument() -> None:
    rows = {
        prefix: [
            cell(prefix, "Plant", rows=2) + cell(prefix, "2023", columns=2),
            covered + cell(prefix, "Q1") + cell(prefix, "Q2"),
            cell(prefix, "Mill", rows=2) + cell(prefix, "1") + cell(prefix, "2"),
            covered + cell(prefix, "3", columns=2),
        ]
        for prefix, covered in (("a", "<a:tc vMerge='1'/>"), ("table", "<table:covered-table-cell/>"))
    }
    slide = "".join(f"<a:tr>{row}</a:tr>" for row in rows["a"])
    frame = f"<p:graphicFrame><a:tbl><a:tblPr firstRow='1'/>{slide}</a:tbl></p:graphicFrame>"
    expected = ["Plant | 2023 | 2023\nPlant | Q1 | Q2\nMill | 1 | 2\nMill | 3"]
    assert blocks("a.pptx", make_pptx(frame)) == expected
    header, *body = [f"<table:table-row>{row}</table:table-row>" for row in rows["table"]]
    table = f"<table:table><table:table-header-rows>{header}</table:table-header-rows>{''.join(body)}</table:table>"
    assert blocks("a.odt", make_odf("text", table)) == expected
    frame = f"<draw:page><draw:frame>{table}</draw:frame></draw:page>"
    assert blocks("a.odp", make_odf("presentation", frame)) == expected
    assert blocks("a.ods", make_odf("spreadsheet", table)) == [
        "Plant: Mill\n2023 Q1: 1\n2023 Q2: 2",
        "Plant: Mill\n2023 Q1: 3\n2023 Q2: 3",
    ]


MIXED = [("Project", "Harbour wall"), ("Manager", "Ida Lund"), ("Budget", "=120000")]
BESIDE = [("Fruit", "Kilos", "", "Staff", "Shift"), ("Fig", "=3", "", "Ola", "Night"), ("Date", "=5")]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A second table below an empty row, with names of its own; and rows that belong to the first one.
        ([("Fruit", "Kilos"), ("Fig", "=3"), ("Date", "=5"), (), ("Staff", "Shift"), ("Ola", "Night")],
         ["Fruit: Fig\nKilos: 3", "Fruit: Date\nKilos: 5", "Staff: Ola\nShift: Night"]),
        ([("Fruit", "Kilos"), ("Fig", "=3"), (), ("Name", "Age", "City"), ("Ola", "=5", "Oslo")],
         ["Fruit: Fig\nKilos: 3", "Name: Ola\nAge: 5\nCity: Oslo"]),
        ([("Fruit", "Kilos"), ("Fig", "=3"), (), ("Date", "=5"), (), ("Fruit", "Kilos"), ("Nut", "=1")],
         ["Fruit: Fig\nKilos: 3", "Fruit: Date\nKilos: 5", "Fruit: Nut\nKilos: 1"]),
        ([("Fruit", "Kilos"), ("Fig", "=3"), (), ("Source: a survey",)],
         ["Fruit: Fig\nKilos: 3", "Source: a survey"]),
        ([("Name", "Mail"), ("Ola", "ola@a.no"), (), ("Ben", "ben@a.no")],
         ["Name: Ola\nMail: ola@a.no", "Name: Ben\nMail: ben@a.no"]),
        # Nobody can tell what these two texts are, so they get no names.
        ([("Name", "City"), ("Ola", "Oslo"), (), ("Ben", "Moss")], ["Name: Ola\nCity: Oslo", "Ben | Moss"]),
        (BESIDE, ["Fruit: Fig\nKilos: 3", "Fruit: Date\nKilos: 5", "Staff: Ola\nShift: Night"]),
        ([("Part", "Stock", "", "Part", "Stock"), ("Bolt", "=5", "", "Nut", "=7")],
         ["Part: Bolt\nStock: 5", "Part: Nut\nStock: 7"]),
        ([("Name", "Age", "", "City"), ("Ola", "=5", "", "Oslo")], ["Name: Ola\nAge: 5\nCity: Oslo"]),
        # Pairs of a name and its value.
        (MIXED, ["Project: Harbour wall\nManager: Ida Lund\nBudget: 120000"]),
        ([("Sheet of facts",), *MIXED, (), ("Street:", "Quay 5"), ("City:", "Oslo")],
         ["Sheet of facts", "Project: Harbour wall\nManager: Ida Lund\nBudget: 120000", "Street: Quay 5\nCity: Oslo"]),
        ([("Name:", "Ann", "", "Room:", "B2"), ("Since:", "May", "", "Desk:", "Four")],
         ["Name: Ann\nSince: May", "Room: B2\nDesk: Four"]),
        ([("Item", "Price"), ("pot", "=5"), ("lid", "n/a")], ["Item: pot\nPrice: 5", "Item: lid\nPrice: n/a"]),
        ([("Question", "Answer"), ("Hot?", "Yes."), ("Cold?", "No.")],
         ["Question: Hot?\nAnswer: Yes.", "Question: Cold?\nAnswer: No."]),
        # Names of groups above the names of columns, and units below them.
        ([("", "2023", "", "2024", ""), ("Plant", "Q1", "Q2", "Q1", "Q2"), ("Mill", "=1", "=2", "=3", "=4")],
         ["Plant: Mill\n2023 Q1: 1\n2023 Q2: 2\n2024 Q1: 3\n2024 Q2: 4"]),
        ([("Part", "Mass", "Length"), ("", "kg", "m"), ("Bolt", "=1.5", "=2")],
         ["Part: Bolt\nMass kg: 1.5\nLength m: 2"]),
        ([("Prices", "", "", "in May"), ("Fruit", "Kilos", "Price", "Shop"), ("Fig", "=3", "=4", "Mo")],
         ["Prices | in May", "Fruit: Fig\nKilos: 3\nPrice: 4\nShop: Mo"]),
        ([("Name", "City", "Job"), ("Ola", "Oslo", "cook"), ("Ben", "Moss", "smith")],
         ["Name: Ola\nCity: Oslo\nJob: cook", "Name: Ben\nCity: Moss\nJob: smith"]),
    ],
)  # fmt: skip
def test_tables_of_a_sheet(rows: list[tuple[str, ...]], expected: list[str]) -> None:
    written = "".join(row_of(*row) for row in rows).replace('<c t="str"><v></v></c>', "<c/>")
    assert blocks("a.xlsx", make_xlsx(written)) == expected


def test_merged_cells_and_hidden_sheets() -> None:
    rows = row_of("Figures") + row_of("Region", "Sales") + row_of("", "Jan", "Feb") + row_of("North", "=1", "=2")
    rows += row_of("", "=3", "=4") + row_of("South", "=5", "=6") + row_of("", "=7")
    merged = ("A1:C1", "A2:A3", "B2:C2", "A4:A5", "B7:XFD1048576", "A9:A8", "x")
    after = "".join(f"<mergeCell ref='{ref}'/>" for ref in merged)
    data = make_xlsx(rows, after=f"<mergeCells>{after}</mergeCells>")
    assert blocks("a.xlsx", data) == [
        "Figures",
        "Region: North\nSales Jan: 1\nSales Feb: 2",
        "Region: North\nSales Jan: 3\nSales Feb: 4",
        "Region: South\nSales Jan: 5\nSales Feb: 6",
        "Sales Jan: 7\nSales Feb: 7",
    ]
    style = "<style:style style:name='ta2'><style:table-properties table:display='false'/></style:style>"
    row = f"<table:table-row>{cell('table', 'one')}</table:table-row>"
    table = f"<table:table table:name='Rates' table:style-name='ta2'>{row}</table:table>"
    (document,) = read("a.ods", make_odf("spreadsheet", table, style))
    assert document.blocks[0].headings == ("Rates (hidden sheet)",)


def test_numbers_of_cells_stay_whole() -> None:
    formats = "".join(f"<numFmt numFmtId='{n}' formatCode='{code}'/>" for n, code in ((164, "00000"), (165, "0.0%")))
    used = "".join(f"<xf numFmtId='{n}'/>" for n in (0, 164, 165, 9))
    values = [(0, "1234567890123456"), (0, "4.5E+19"), (0, "1E+300"), (1, "501"), (2, "0.125"), (3, "0.07"), (0, "x")]
    cells = "".join(f"<c s='{style}'><v>{value}</v></c>" for style, value in values)
    styles = f"<numFmts>{formats}</numFmts><cellXfs>{used}</cellXfs>"
    expected = "1234567890123456 | 45000000000000000000 | 1e+300 | 00501 | 12.5% | 7% | x"
    assert blocks("a.xlsx", make_xlsx(f"<row>{cells}</row>", styles=styles)) == [expected]


@pytest.mark.parametrize(
    ("text", "above", "rows"),
    [
        ("Sales 2024\nMade,2024-01-02\n\nRegion,Jan,Feb\nNorth,1,2\nSouth,3,4\n", ["Sales 2024\nMade | 2024-01-02"], 2),
        ("Report, May\nRegion;Jan;Feb\nNorth;1,5;2\nSouth;2,5;3\n", ["Report, May"], 2),
        ("sep=;\nRegion;Jan;Feb\nNorth;1,5;2\n", [], 1),
        ("Report;;\n;;\nRegion;Jan;Feb\nNorth;1;2\nSouth;2;3\n", ["Report"], 2),
        ("Region,Jan,Feb\nNorth,1,2,3,4\nSouth,1\n", [], 2),
        ("Region,Jan,Feb\n", [], 0),
    ],
)
def test_lines_above_the_header_of_a_table(text: str, above: list[str], rows: int) -> None:
    try:
        shown = blocks("a.csv", text)
    except DocumentError:
        shown = []
    assert shown[: len(above)] == above
    assert [line.startswith("Region: ") for line in shown[len(above) :]] == [True] * rows


def test_opendocument_shows_lists_headings_pictures_and_charts() -> None:
    def list_level(number: int, kind: str, more: str = "") -> str:
        return f"<text:list-level-style-number text:level='{number}' style:num-format='{kind}' {more}/>"

    levels = list_level(1, "1", "style:num-suffix='.'") + list_level(2, "a", "text:display-levels='2'")
    styles = f"<text:list-style style:name='L1'>{levels}</text:list-style>"

    def item(text: str, inside: str = "", more: str = "") -> str:
        return f"<text:list-item {more}><text:p>{text}</text:p><text:p>more</text:p>{inside}</text:list-item>"

    inner = f"<text:list>{item('in')}{item('in')}</text:list>"
    start = "text:start-value='7'"
    body = f"<text:list text:style-name='L1'>{item('x', inner)}{item('y', more=start)}</text:list><text:p>gap</text:p>"
    body += f"<text:list text:style-name='L1' text:continue-numbering='true'>{item('z')}</text:list>"
    body += f"<text:list text:style-name='L1'>{item('new')}</text:list>"
    numbered = ["1. x", "1.a in", "1.b in", "7. y", "gap", "8. z", "1. new"]
    data = make_odf("text", body, styles, doctype='<!DOCTYPE office:document-content PUBLIC "x" "office.dtd">')
    assert [text for text in blocks("a.odt", data) if text != "more"] == numbered
    chart = (
        "<office:document-content><office:body><office:chart><chart:chart><chart:title><text:p>Rain</text:p></chart:title>"
        f"<table:table><table:table-rows><table:table-row>{cell('table', 'Jan')}{cell('table', '5')}</table:table-row>"
        "</table:table-rows></table:table></chart:chart></office:chart></office:body></office:document-content>"
    )
    frame = "<draw:frame><draw:object xlink:href='./O'/><svg:desc>A map</svg:desc></draw:frame>"
    shown = ["Picture: A map", "Rain\nJan | 5"]
    assert blocks("a.odt", make_odf("text", f"<text:p>text{frame}</text:p>", O=chart)) == ["text", *shown]
    assert blocks("a.odp", make_odf("presentation", f"<draw:page>{frame}</draw:page>", O=chart)) == shown
    table = f"<table:table><table:shapes>{frame}</table:shapes></table:table>"
    assert blocks("a.ods", make_odf("spreadsheet", table, O=chart)) == shown


def test_hostile_spans_formulas_and_imports_stay_in_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MOST_REPEATED", 1_000)
    page = f"<table><tr><th colspan=999999>{'x' * 99}<th>y</tr><tr><td rowspan=999999>{'z' * 99}"
    assert len(blocks("a.html", page + "<tr><td>a" * 50)[0]) < 9_000
    (text,) = blocks("a.html", "<p>so <math>" + "<mrow>" * 3_000 + "<mn>5</mn></math>")
    assert text == "so 5"
    monkeypatch.setattr(spreadsheet, "MOST_CELLS", 100)
    cells = "".join(row_of("a", "b", "c") for _ in range(20))
    merged = "<mergeCells>" + "<mergeCell ref='A1:C20'/>" * 9 + "</mergeCells>"
    with pytest.raises(DocumentError, match="merged cells for more than 100 values"):
        blocks("a.xlsx", make_xlsx(cells, after=merged))
    monkeypatch.setattr(package, "LARGEST_PACKAGE", 2_000)
    with pytest.raises(DocumentError, match="unpacks to more than 2,000 bytes"):
        blocks("a.docx", make_docx('<w:altChunk r:id="aFChunk"/>', aFChunk=make_docx(paragraph("x" * 1_500))))
